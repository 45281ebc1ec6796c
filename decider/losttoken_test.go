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
