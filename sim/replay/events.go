package replay

import "time"

// news is something that will happen, or be heard of, at its time.
type news struct {
	at     time.Duration
	order  uint64 // of equal times, the one pushed first comes first
	kind   newsKind
	n      int // a replica
	flight *flight
}

type newsKind uint8

const (
	newsConnected newsKind = iota
	newsFirstToken
	newsFinished
	newsPoll    // look at an engine's first tokens
	newsScrape  // look at its queue and cache
	newsRelease // bind what is held by the clock
	newsSweep   // end reservations without news
	newsDeath   // a replica dies
	newsHealth  // the proxy has noticed
)

// newsQueue is a heap, the next to come on top.
type newsQueue struct {
	heap   []news
	pushed uint64
}

// at is the time of the next news.
func (q *newsQueue) at() time.Duration {
	if len(q.heap) == 0 {
		return never
	}
	return q.heap[0].at
}

func (q *newsQueue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *newsQueue) push(n news) {
	q.pushed++
	n.order = q.pushed
	q.heap = append(q.heap, n)
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *newsQueue) pop() news {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = news{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			return top
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
}
