package decider_test

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// A request that is watched is followed by its session to its end; others are
// not.
func TestWatch(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 2)
	of := func(session uint64) func(*decider.Request) {
		return func(r *decider.Request) { r.Session, r.Watched, r.HasSession = session, session, true }
	}
	p.Decider.Watch(7)
	p.Served(of(8))
	if _, ok := p.Decider.Watched(7); ok {
		t.Error("another session is taken for it")
	}
	d, id := p.Send(of(7))
	w, ok := p.Decider.Watched(7)
	if !ok || w.Server != d.Server || w.Ended || w.FirstByte {
		t.Errorf("decided: %+v, %v", w, ok)
	}
	p.FirstToken(id, []byte(d.Server))
	p.Served(of(7)) // the next of the session is not the one
	if w, _ := p.Decider.Watched(7); !w.FirstByte || w.ServedBy != d.Server || w.Ended {
		t.Errorf("first byte: %+v", w)
	}
	p.Finished(decider.Outcome{ID: id, Server: []byte(d.Server), End: decider.Served, Status: 200})
	if w, _ := p.Decider.Watched(7); !w.Ended || w.End != "served" || w.Status != 200 {
		t.Errorf("end: %+v", w)
	}
	p.Decider.Watch(9)
	if _, ok := p.Decider.Watched(7); ok {
		t.Error("a new watch does not replace the old one")
	}
}
