package queue

import (
	"testing"
	"time"
)

// Within a band, a tenant's requests are offset by the work that it sent, and
// another tenant starts where the band is.
func TestProxyOffsets(t *testing.T) {
	p := NewProxy(NewSettings(Config{Bands: []Band{{Name: "a"}, {Name: "b"}}, Shares: []Share{{Name: "heavy", Tenant: 3, Weight: 2}}}))
	next := func(band int, tenant uint64) Slot {
		return p.Next(Entry{Band: band, Tenant: tenant, Prefill: 500, Work: 1000}, 0, 500, 1000)
	}
	for i, want := range []int{0, 1000, 2000} {
		if s := next(1, 1); s.Class != classStep || s.Offset != want {
			t.Errorf("request %d: %+v, want class %d and offset %d", i, s, classStep, want)
		}
	}
	if s := next(0, 1); s.Class != 0 || s.Offset != 0 {
		t.Errorf("another band: %+v", s)
	}
	if s := next(1, 2); s.Offset != 0 {
		t.Errorf("another tenant: %+v", s)
	}
	next(1, 3)
	if s := next(1, 3); s.Offset != 500 {
		t.Errorf("a tenant of weight 2: %+v, want an offset of 500", s)
	}
	// When the second request of tenant 1 is served, the band is there.
	p.Served(1, 1000)
	if s := next(1, 1); s.Offset != 2000 {
		t.Errorf("after one was served: %+v, want an offset of 2000", s)
	}
	if s := next(1, 9); s.Offset != 0 || s.Start != 1000 {
		t.Errorf("a tenant that comes later: %+v", s)
	}
}

// Bands with weights share the class of the first of them, and the work.
func TestProxyWeights(t *testing.T) {
	p := NewProxy(NewSettings(Config{Bands: []Band{{Name: "s"}, {Name: "v", Weight: 2}, {Name: "w", Weight: 1}}}))
	for i, c := range []struct{ band, offset int }{{1, 0}, {1, 500}, {2, 0}, {2, 1000}} {
		s := p.Next(Entry{Band: c.band, Tenant: uint64(i), Work: 1000}, 0, 500, 1000)
		if s.Class != classStep || s.Offset != c.offset {
			t.Errorf("request %d of band %d: %+v, want class %d and offset %d", i, c.band, s, classStep, c.offset)
		}
	}
	p.Served(2, 0)
	if p.tag != p.bands[2].start {
		t.Errorf("the bands are at %g, want %g", p.tag, p.bands[2].start)
	}
}

func TestProxyOrders(t *testing.T) {
	p := NewProxy(NewSettings(Config{Bands: []Band{{Name: "d", Order: ByDeadline}, {Name: "w", Order: ByWork}}}))
	e := Entry{Tenant: 1, Prefill: 100}
	now := 5 * time.Second
	without := p.Next(e, now, 500, 1000).Offset
	e.Deadline = 9 * time.Second
	if with := p.Next(e, now, 500, 1000).Offset; with != 4000 || without != mostOffset/2+1 {
		t.Errorf("offsets %d with a deadline, %d without", with, without)
	}
	e.Deadline = 100 * time.Hour
	if far := p.Next(e, now, 500, 1000).Offset; far != mostOffset {
		t.Errorf("a far deadline has offset %d, want the bound", far)
	}
	e = Entry{Band: 1, Prefill: 100}
	if s := p.Next(e, now, 500, 1000); s.Offset != 2000 {
		t.Errorf("100 tokens have offset %d, want 2000", s.Offset)
	}
}

func TestProxyCountsWhatWaits(t *testing.T) {
	p := NewProxy(NewSettings(Config{Bands: []Band{{Name: "a"}, {Name: "v", Weight: 1}, {Name: "w", Weight: 1}}}))
	p.Sent(0, 3)
	p.Sent(1, 2)
	p.Sent(2, 4)
	p.Sent(9, 1) // beyond the last band: it counts there
	for _, c := range []struct{ band, places, excess, waiting int }{{0, 2, 1, 1}, {1, 2, 8, 2}, {2, 2, 8, 5}, {0, 9, 0, 0}} {
		if e, w := p.Excess(c.band, c.places), p.Waiting(c.band, c.places); e != c.excess || w != c.waiting {
			t.Errorf("band %d, %d places: %d in excess, %d wait; want %d and %d", c.band, c.places, e, w, c.excess, c.waiting)
		}
	}
	if p.EndRate(0) != 0 {
		t.Error("requests end before one has ended")
	}
	for i := range 60 {
		p.Ended(time.Duration(i) * time.Second / 2)
	}
	if r := p.EndRate(30 * time.Second); r < 1.9 || r > 2.1 {
		t.Errorf("%g requests end per second, want 2", r)
	}
}

func TestProxyForgetsTenants(t *testing.T) {
	p := NewProxy(NewSettings(Config{Bands: []Band{{Name: "a"}}}))
	for i := range uint64(3 * tenantsKept) {
		p.Next(Entry{Tenant: i, Work: 10}, 0, 500, 1000)
	}
	if n := len(p.bands[0].flows); n > tenantsKept {
		t.Errorf("%d tenants are remembered", n)
	}
	p.bands[0].tag = 1e9
	p.Next(Entry{Tenant: 1}, 0, 500, 1000)
	if p.bands[0].flows[1] != nil {
		t.Error("a tenant that had no more than the others is remembered")
	}
}
