package metrics

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An engine whose server says that its core is dead is left out within two seconds, as
// long as it does not say that it is alive again, also while its server is away.
func TestLeavesOutADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		at := func() time.Duration { return time.Since(start) }
		dying := &fakeEngine{t: t, takes: time.Millisecond, page: busy}
		dying.health = func() error {
			switch now := at(); {
			case now < 10*time.Second, now > 60*time.Second:
				return nil
			case now < 20*time.Second:
				return statusError(503)
			}
			return errors.New("connection refused")
		}
		other := &fakeEngine{t: t, takes: time.Millisecond, page: busy, health: func() error { return nil }}
		r := newRig(Options{}, dying, other)
		done := make(chan struct{})
		go func() { r.run(80 * time.Second); close(done) }()
		state := func() string { return r.pool.Status().Replicas[0].State }
		for at() < 79*time.Second {
			time.Sleep(100 * time.Millisecond)
			switch now := at(); {
			case now > 12*time.Second && now < 60*time.Second:
				if state() != "ejected" {
					t.Fatalf("after %v it is %s", now, state())
				}
			case now < 10*time.Second, now > 62*time.Second:
				if state() != "up" {
					t.Fatalf("after %v it is %s", now, state())
				}
			}
			if s := r.pool.Status().Replicas[1].State; s != "up" {
				t.Fatalf("the other is %s", s)
			}
		}
		<-done
		if n := strings.Count(r.log.String(), "engine is dead"); n != 1 || strings.Count(r.log.String(), "alive again") != 1 {
			t.Errorf("log:\n%s", r.log.String())
		}
		asked := 0
		for _, p := range other.paths {
			if p == "/health" {
				asked++
			}
		}
		if asked < 60 || asked > 90 {
			t.Errorf("asked for health %d times in 80 s", asked)
		}
	})
}
