package decider

import (
	"testing"

	"pointsman/decider/queue"
)

// A prompt whose beginning alone was seen, or is kept, is found in the cache to its end
// when it comes again, with and without an admission.
func TestTruncatedPromptsAreExtrapolated(t *testing.T) {
	for why, a := range map[string]*Admission{
		"none": nil, "held": {Hold: true, Bands: []queue.Band{{Name: "a"}}}, "in the proxy": {Bands: []queue.Band{{Name: "a"}}},
	} {
		for _, short := range []bool{false, true} {
			p, clock := newTestPool(LeastWork{}, 2, func(c *PoolConfig) { c.Admission = a })
			send := func() (own int) {
				clock.now += seconds(60)
				cached := p.Status().CachedTokens
				r := Request{ID: newID(), Pool: p, Input: 33_000, Output: -1, Blocks: []uint64{1, 2, 3}, Cut: !short, Short: short}
				var d Decision
				if p.Submit(&r, &d, nil) {
					t.Fatal("held by an idle pool")
				}
				if len(r.Blocks) != 3 {
					t.Errorf("%s: the request was left with %d blocks", why, len(r.Blocks))
				}
				p.FirstToken(r.ID, []byte(d.Server))
				p.Finished(Outcome{ID: r.ID, Server: []byte(d.Server)})
				return r.Input - int(p.Status().CachedTokens-cached)
			}
			if first, second := send(), send(); first != 33_000 || second > 256 {
				t.Errorf("%s, cut %v: %d tokens to compute, and %d the second time", why, !short, first, second)
			}
		}
	}
}
