package sim

import (
	"slices"
	"testing"
)

// TestShare: engines that share a cache find each other's blocks, and take jobs
// from one queue.
func TestShare(t *testing.T) {
	engines := []*Engine{
		newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40}),
		newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40}),
	}
	Share(engines)
	if n := engines[1].Stats().TotalBlocks; n != 20 {
		t.Errorf("%d blocks, want those of both", n)
	}
	first := &Job{Blocks: []uint64{1, 2, 3}, Input: 12, Output: 1}
	if err := engines[0].Submit(0, first); err != nil {
		t.Fatal(err)
	}
	finish(engines[0])
	if !engines[1].Holds(3) || engines[1].Holds(4) {
		t.Error("the second engine does not see the blocks of the first")
	}
	// The first engine is busy, so the second one takes the next jobs.
	long := &Job{Input: 12, Output: 20}
	next := &Job{Blocks: []uint64{1, 2, 3}, Input: 13, Output: 1}
	if err := engines[0].Submit(0, long); err != nil {
		t.Fatal(err)
	}
	if err := engines[0].Submit(0, next); err != nil {
		t.Fatal(err)
	}
	engines[1].Wake(0)
	if events := finish(engines[1]); len(events) != 2 || events[0].Job != next || next.Cached != 12 {
		t.Errorf("events %v, %d tokens cached", events, next.Cached)
	}
	if events := finish(engines[0]); len(events) != 2 || events[1].Job != long || long.Generated() != 20 {
		t.Errorf("events %v, %d tokens", events, long.Generated())
	}
}

// TestFollow: callbacks see each block that is cached and each that is evicted,
// after those that were set before.
func TestFollow(t *testing.T) {
	var calls []string
	record := func(name string) (func(*Job, int), func(uint64)) {
		return func(j *Job, i int) { calls = append(calls, name+" stored") },
			func(key uint64) { calls = append(calls, name+" removed") }
	}
	stored, removed := record("a")
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 8, Stored: stored, Removed: removed})
	e.Follow(record("b"))
	for key := range uint64(2) {
		if err := e.Submit(0, &Job{Blocks: []uint64{key + 1}, Input: 7, Output: 1}); err != nil {
			t.Fatal(err)
		}
		finish(e)
	}
	want := []string{"a stored", "b stored", "a removed", "b removed", "a stored", "b stored"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}

// TestJobQueue: jobs come out in order, a preempted one first, however many
// have passed.
func TestJobQueue(t *testing.T) {
	var q jobQueue
	jobs := make([]Job, 300)
	for i := range jobs {
		q.pushBack(&jobs[i])
	}
	for i := range 200 {
		if q.front() != &jobs[i] {
			t.Fatalf("job %d is not in front", i)
		}
		q.popFront()
	}
	q.remove(&jobs[250])
	q.pushFront(&jobs[0])
	var order []*Job
	q.each(func(j *Job) { order = append(order, j) })
	if len(order) != 100 || q.len() != 100 || order[0] != &jobs[0] || order[1] != &jobs[200] || order[99] != &jobs[299] || slices.Contains(order, &jobs[250]) {
		t.Errorf("%d jobs left", len(order))
	}
}

// TestEngineJobs lists running jobs and waiting ones.
func TestEngineJobs(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40})
	running, waiting := &Job{Input: 30, Output: 2}, &Job{Input: 30, Output: 2}
	for _, j := range []*Job{running, waiting} {
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	got := map[*Job]bool{}
	e.Jobs(func(j *Job, isRunning bool) { got[j] = isRunning })
	if len(got) != 2 || !got[running] || got[waiting] {
		t.Errorf("jobs %v", got)
	}
}
