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

// An engine whose API servers have ended, while its port still accepts connections, is
// left out within two seconds, until it answers again. One that is slow is not.
func TestLeavesOutAnAbandonedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		at := func() time.Duration { return time.Since(start) }
		within := func(from, to time.Duration) func() bool {
			return func() bool { now := at(); return now > from*time.Second && now < to*time.Second }
		}
		fine := func() error { return nil }
		ends := &fakeEngine{t: t, takes: time.Millisecond, page: busy, health: fine, gone: within(10, 30)}
		slow := &fakeEngine{t: t, takes: 1500 * time.Millisecond, page: busy, health: fine}
		blink := &fakeEngine{t: t, takes: time.Millisecond, page: busy, health: fine}
		blink.gone = func() bool { return at()%(5*time.Second) < lostAfter/2 }
		r := newRig(Options{}, ends, slow, blink)
		done := make(chan struct{})
		go func() { r.run(60 * time.Second); close(done) }()
		for at() < 59*time.Second {
			time.Sleep(100 * time.Millisecond)
			replicas := r.pool.Status().Replicas
			switch now := at(); {
			case now > 12*time.Second && now < 30*time.Second:
				if replicas[0].State != "ejected" {
					t.Fatalf("after %v it is %s", now, replicas[0].State)
				}
			case now < 10*time.Second, now > 34*time.Second:
				if replicas[0].State != "up" {
					t.Fatalf("after %v it is %s", now, replicas[0].State)
				}
			}
			if replicas[1].State != "up" || replicas[2].State != "up" {
				t.Fatalf("after %v the others are %s, %s", at(), replicas[1].State, replicas[2].State)
			}
		}
		<-done
		if n := strings.Count(r.log.String(), "engine is dead"); n != 1 || strings.Count(r.log.String(), "alive again") != 1 {
			t.Errorf("log:\n%s", r.log.String())
		}
	})
}
