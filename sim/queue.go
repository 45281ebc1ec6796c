package sim

import "slices"

// jobQueue is the first-come, first-served queue of waiting jobs. Popping takes
// amortised constant time. Only a preempted job is pushed to the front.
type jobQueue struct {
	jobs []*Job
	head int
}

func (q *jobQueue) len() int        { return len(q.jobs) - q.head }
func (q *jobQueue) front() *Job     { return q.jobs[q.head] }
func (q *jobQueue) pushBack(j *Job) { q.jobs = append(q.jobs, j) }

func (q *jobQueue) pushFront(j *Job) {
	if q.head == 0 {
		q.jobs = slices.Insert(q.jobs, 0, j)
		return
	}
	q.head--
	q.jobs[q.head] = j
}

func (q *jobQueue) popFront() {
	q.jobs[q.head] = nil
	q.head++
	if q.head > 64 && q.head*2 > len(q.jobs) {
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
}

func (q *jobQueue) remove(j *Job) {
	i := q.head + slices.Index(q.jobs[q.head:], j)
	q.jobs = slices.Delete(q.jobs, i, i+1)
}

func (q *jobQueue) each(f func(*Job)) {
	for _, j := range q.jobs[q.head:] {
		f(j)
	}
}
