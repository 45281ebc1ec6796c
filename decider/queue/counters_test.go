package queue

import (
	"reflect"
	"testing"
	"time"
)

func TestCounts(t *testing.T) {
	s := NewSettings(Config{Bands: []Band{{Name: "a"}, {Name: "b"}}, Shares: []Share{{Name: "ann", Tenant: 7, Weight: 3}}})
	c := NewCounters(s, nil)
	c.Of(0, 7).Held++
	c.Of(0, 8).Admitted++
	c.Of(5, 8).Refused[Late]++ // beyond the last band: it counts there
	for _, d := range []time.Duration{0, 2 * time.Millisecond, time.Hour} {
		c.Of(1, 7).Wait(d)
	}
	if s.Class(7) != "ann" || s.Class(8) != OtherTenants {
		t.Errorf("classes %s and %s", s.Class(7), s.Class(8))
	}
	q := New[string](s)
	q.Add(Entry{ID: [16]byte{1}, Band: 1, Bytes: 5, Work: 9}, "x", time.Second, speed)
	status := q.Status(c, 3*time.Second)
	b := status[1]
	if b.Name != "b" || b.Queued != 1 || b.Bytes != 5 || b.Tokens != 9 || b.Oldest != 2 {
		t.Errorf("status %+v", b)
	}
	if status[0].Counts["ann"].Held != 1 || status[0].Counts[OtherTenants].Admitted != 1 || status[0].Oldest != 0 {
		t.Errorf("status %+v", status[0])
	}
	want := map[string]uint64{"queue_full": 0, "waited_too_long": 0, "deadline": 1, "no_replica": 0}
	if got := b.Counts[OtherTenants].Refused; !reflect.DeepEqual(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
	ann := b.Counts["ann"]
	if last := len(WaitBounds()); ann.Waits[0] != 1 || ann.Waits[1] != 1 || ann.Waits[last] != 1 || ann.WaitSeconds != 3600.002 {
		t.Errorf("waits %v, %g s", ann.Waits, ann.WaitSeconds)
	}
}

// Bands and classes keep their counts by name over a reconfiguration.
func TestCountersAreCarriedOver(t *testing.T) {
	old := NewCounters(NewSettings(Config{Bands: []Band{{Name: "a"}, {Name: "b"}}, Shares: []Share{{Name: "ann", Tenant: 7}, {Name: "bob", Tenant: 9}}}), nil)
	old.Of(0, 7).Held = 1
	old.Of(0, 9).Held = 2
	old.Of(0, 0).Held = 3
	old.Of(1, 7).Held = 4
	old.Arrived(0, 600, 0)
	c := NewCounters(NewSettings(Config{Bands: []Band{{Name: "new"}, {Name: "a"}}, Shares: []Share{{Name: "bob", Tenant: 9}}}), old)
	if c.Of(1, 9).Held != 2 || c.Of(1, 0).Held != 3 || c.Of(1, 7).Held != 3 || c.Of(0, 9).Held != 0 {
		t.Errorf("counts %+v", c.counts)
	}
	if c.ArrivalRate(1, time.Second) != old.ArrivalRate(0, time.Second) || c.ArrivalRate(0, 0) != 0 {
		t.Error("the rate of arrivals is lost")
	}
}

func TestRate(t *testing.T) {
	var r rate
	for i := range 600 {
		r.add(100, time.Duration(i)*time.Second)
	}
	if x := r.perSecond(600 * time.Second); x < 95 || x > 105 {
		t.Errorf("%g per second, want 100", x)
	}
	if x := r.perSecond(660 * time.Second); x < 33 || x > 40 {
		t.Errorf("%g per second a minute later, want 100/e", x)
	}
	// A short past counts as such.
	r = rate{}
	r.add(100, 0)
	if x := r.perSecond(0); x < 99 || x > 101 {
		t.Errorf("%g per second after one second, want 100", x)
	}
}

func TestNames(t *testing.T) {
	if n := OrderNames(); len(n) != int(Orders) || n[ByDeadline] != "deadline" {
		t.Errorf("orders %v", n)
	}
	if Full.String() != "queue_full" || NoReplica.String() != "no_replica" {
		t.Errorf("reasons %v and %v", Full, NoReplica)
	}
	s := NewSettings(Config{Bands: []Band{{Name: "a"}, {Name: "b"}}})
	if s.Index("a") != 0 || s.Index("none") != 1 || s.Len() != 2 || s.Clamp(9) != 1 {
		t.Error("bands are not found by name")
	}
}
