package decider

import (
	"bytes"
	"testing"
	"time"
)

// After a restart the counts are right within 10 s, also if other requests ended meanwhile
// than those taken for lost.
func TestCountsAfterRestart(t *testing.T) {
	a := newLife(1, "s")
	var ids []ID
	for range 8 {
		d, id := decide(a.Pool)
		a.FirstToken(id, []byte(d.Server))
		ids = append(ids, id)
	}
	b := newLife(1, "s")
	b.clock.now = time.Minute
	if _, err := b.State().Restore(bytes.NewReader(a.snapshot(t)), "", time.Second); err != nil {
		t.Fatal(err)
	}
	run := func(n int) {
		for range 20 {
			b.clock.now += 500 * time.Millisecond
			b.Engine("r0").Signals(Signals{Running: n})
		}
		if got := b.Status().Reservations; got != n {
			t.Errorf("%d reservations where the engine has %d requests", got, n)
		}
	}
	run(6) // the two newest have ended, the two oldest are taken for them
	if b.Holds(ids[0]) || !b.Holds(ids[7]) {
		t.Fatal("others are taken for lost")
	}
	for _, id := range ids[:6] {
		b.Finished(Outcome{ID: id, Server: []byte("r0"), Status: 200, TTFT: time.Second})
	}
	run(0)
}
