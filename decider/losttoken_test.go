package decider

import (
	"testing"
	"time"
)

// A first token that was lost keeps its request in the queue only until those behind it
// have had theirs, or the engine shows that it has begun them.
func TestALostFirstTokenLeavesTheQueue(t *testing.T) {
	queue := func(n int) (*Pool, *testClock, []ID) {
		p, clock := newTestPool(LeastWork{}, 1)
		_, before := decide(p, document(0, 4, 0))
		serve(p, before, "r0") // first tokens are reported
		ids := make([]ID, n)
		for i := range ids {
			_, ids[i] = decide(p, document(i+1, 4, 0))
		}
		return p, clock, ids
	}
	length := func(p *Pool, clock *testClock, after time.Duration) int {
		backlogs(p, clock, after)
		return p.replicas[0].prefill.n
	}

	p, clock, ids := queue(4)
	p.FirstToken(ids[1], []byte("r0"))
	if got := length(p, clock, 0); got != 3 {
		t.Errorf("one first token came before that of the head: %d queued, want 3", got)
	}
	p.FirstToken(ids[2], []byte("r0"))
	if got := length(p, clock, 0); got != 1 {
		t.Errorf("two came before that of the head: %d queued, want 1", got)
	}

	for _, c := range []struct{ waiting, want int }{{0, 0}, {1, 2}, {3, 4}} {
		p, clock, _ := queue(4)
		left := 0
		for range 40 { // the queue is computed in less than a second
			clock.now += 100 * time.Millisecond
			p.Engine("r0").Signals(Signals{Waiting: c.waiting, Running: 5 - c.waiting})
			left = length(p, clock, 0)
		}
		if left != c.want {
			t.Errorf("%d of 4 wait in the engine for long: %d queued, want %d", c.waiting, left, c.want)
		}
	}
}

// A replica whose first tokens are late while nothing waits there is slow: its speed is
// learned, although the requests have left its queue by then.
func TestASlowReplicaIsLearnedWithoutAQueue(t *testing.T) {
	for _, next := range []bool{false, true} {
		p, clock := newTestPool(LeastWork{}, 1)
		run := func(by time.Duration, running int) {
			for range by / (100 * time.Millisecond) {
				p.Engine("r0").Signals(Signals{Running: running})
				backlogs(p, clock, 100*time.Millisecond)
			}
		}
		_, before := decide(p, document(0, 4, 0))
		serve(p, before, "r0") // first tokens are reported
		for n := range 30 {
			_, id := decide(p, document(n+1, 40, 0)) // about a second of work
			run(6*time.Second, 1)
			if p.replicas[0].prefill.n != 0 && n == 0 {
				t.Fatal("it is in the queue yet")
			}
			if next { // it says nothing of the time that the first one took
				_, other := decide(p, document(1000+n, 1, 0))
				serve(p, id, "r0")
				run(100*time.Millisecond, 1)
				serve(p, other, "r0")
				continue
			}
			serve(p, id, "r0")
		}
		speed := p.load.speedOf(p.replicas[0]) / initialSpeed
		if !next && speed > 0.5 || next && speed > 1.2 {
			t.Errorf("with another request behind: %v: the speed is learned as %.2f of what it was", next, speed)
		}
	}
}
