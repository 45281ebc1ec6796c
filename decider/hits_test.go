package decider

import "testing"

// What was achievable counts the replica with most of the prompt, and what is
// expected the one chosen; both forget.
func TestHitRatio(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	send := func(blocks ...uint64) (Request, string) {
		r := Request{ID: newID(), Pool: p, Input: len(blocks) * DefaultBlockTokens, Output: 1, Blocks: blocks}
		var d Decision
		p.Decide(&r, &d)
		return r, d.Server
	}
	end := func(r Request, server string) {
		p.FirstToken(r.ID, []byte(server))
		p.Finished(Outcome{ID: r.ID, Server: []byte(server)})
	}
	if h := p.Status().HitRatio; h != nil {
		t.Errorf("%+v before the first prompt", h)
	}
	end(send(1, 2, 3, 4))
	home, first := send(1, 2, 3, 4) // cached, and stays
	h := p.Status().HitRatio
	if h.Expected != h.Achievable || h.Expected < 0.45 || h.Expected > 0.5 {
		t.Errorf("%+v, want half of all", h)
	}
	p.Discovered([]ReplicaState{{Name: first, Up: true, Draining: true, Weight: 1}})
	expected, achievable := p.Status().CachedTokens, p.Status().Stats.AchievableTokens
	if _, second := send(1, 2, 3, 4); second == first {
		t.Fatal("a draining replica was chosen")
	}
	s := p.Status()
	if s.CachedTokens != expected || s.Stats.AchievableTokens < achievable+3*DefaultBlockTokens || s.HitRatio.Achievable <= s.HitRatio.Expected {
		t.Errorf("%+v: %d of %d were achievable", s.HitRatio, s.CachedTokens-expected, s.Stats.AchievableTokens-achievable)
	}
	end(home, first)
	clock.now += 3 * hitMemory
	if h := p.Status().HitRatio; h != nil {
		t.Errorf("%+v long after the last prompt", h)
	}
}
