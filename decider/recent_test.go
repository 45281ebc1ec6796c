package decider

import (
	"slices"
	"testing"
	"time"
)

func TestPerSecond(t *testing.T) {
	var m perSecond
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	for ms := 5000; ms < 6000; ms += 100 {
		m.add(at(ms))
	}
	for _, tc := range []struct {
		ms   int
		want float64
	}{{5950, 10}, {6000, 10}, {6250, 7.5}, {6900, 1}, {7000, 0}, {60000, 0}} {
		if got := m.rate(at(tc.ms)); got < tc.want-1e-9 || got > tc.want+1e-9 {
			t.Errorf("at %d ms %v a second, want %v", tc.ms, got, tc.want)
		}
	}
}

func TestLatency(t *testing.T) {
	var l latency
	if l.known(0) {
		t.Error("known before the first")
	}
	l.add(time.Second, 0)
	if l.mean != time.Second {
		t.Errorf("mean %v after one of 1s", l.mean)
	}
	for range 60 {
		l.add(3*time.Second, time.Second)
	}
	if l.mean < 2900*time.Millisecond {
		t.Errorf("mean %v after many of 3s", l.mean)
	}
	if l.known(time.Second + latencyKept) {
		t.Error("known for ever")
	}
	l.add(time.Millisecond, time.Hour)
	if l.mean != time.Millisecond {
		t.Errorf("mean %v, want the old one forgotten", l.mean)
	}
}

func TestLatencyIsLearnedFromTheFeed(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 2)
	for range 2 {
		d, id := decide(p)
		clock.now += 2 * time.Second
		p.FirstToken(id, []byte(d.Server))
	}
	d, id := decide(p) // first byte reported with the end only
	clock.now += time.Minute
	p.Finished(Outcome{ID: id, Server: []byte(d.Server), TTFT: time.Second})
	r := p.byName[d.Server]
	if mean, ok := r.TTFT(clock.now); !ok || mean != time.Second {
		t.Errorf("mean %v %v, want 1s: the older one is forgotten", mean, ok)
	}
	p.FirstToken(newID(), []byte(d.Server)) // the proxy went ahead by itself: when is not known
	if mean, _ := r.TTFT(clock.now); mean != time.Second {
		t.Errorf("mean %v after a request of unknown age", mean)
	}
}

func TestAdaptersAreKeptAsEnginesDo(t *testing.T) {
	a := adapters{slots: 2}
	names := func() (s []string) {
		for _, x := range a.list {
			s = append(s, x.name)
		}
		return s
	}
	want := func(w ...string) {
		t.Helper()
		if got := names(); !slices.Equal(got, w) {
			t.Fatalf("has %v, want %v", got, w)
		}
	}
	a.reserve("x")
	a.release("x")
	want() // cancelled before its first byte
	for _, n := range []string{"x", "y"} {
		a.reserve(n)
		a.started(n)
		a.release(n)
	}
	a.reserve("x")
	want("y", "x")
	a.reserve("z")
	want("x", "z") // y was idle, and the least recent
	a.reserve("y")
	want("x", "z", "y") // all in use
	a.release("z")
	want("x", "y")
	a.release("nobody")
	a.started("nobody")
	want("x", "y")
	a.release("x")
	want("x", "y")
	a.restarted()
	want("y") // which is in flight, as far as known
	a.release("y")
	want()
}

func TestSessionsAreBounded(t *testing.T) {
	var s sessionMemory
	replica := &Replica{}
	s.add(&Request{Session: 1, HasSession: true}, replica)
	if s.last(&Request{Session: 1, HasSession: true}) != nil {
		t.Error("remembers while it is off")
	}
	s.enable(true)
	const many = 3 * sessionRows * sessionsPerRow
	kept := &Request{Session: 0, HasSession: true}
	for n := range uint64(many) {
		s.add(&Request{Session: n + 1, HasSession: true}, replica)
		if n%1000 == 0 {
			s.add(kept, replica)
		}
	}
	if s.last(kept) != replica {
		t.Error("a session in use was forgotten for idle ones")
	}
	there := 0
	for n := range uint64(many) {
		if s.last(&Request{Session: n + 1, HasSession: true}) != nil {
			there++
		}
	}
	if there < sessionRows*sessionsPerRow*9/10 || there > sessionRows*sessionsPerRow {
		t.Errorf("%d sessions kept of room for %d", there, sessionRows*sessionsPerRow)
	}
	s.add(&Request{Session: 7}, replica)
	s.enable(false)
	if s.rows != nil {
		t.Error("memory is kept while it is off")
	}
}
