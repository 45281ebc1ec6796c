package decider

import (
	"math"
	"sync/atomic"
	"time"
)

// A pool in shadow decides requests without answering: the proxy balances them by itself.
// The pool books them on the replica that the proxy reports, and compares what it expects
// of its own choice with what it expects of that replica.

// shadow is what a pool compares. It lives under its lock.
type shadow struct {
	forecasts []forecast // by slot of Pool.unplaced
	counts    ShadowCounts
}

// ShadowCounts are sums over the requests that were compared.
type ShadowCounts struct {
	Requests     uint64 // that the proxy placed by itself
	Compared     uint64 // of these, those with a complete forecast
	Same         uint64 // of these, the proxy chose the same replica
	Sooner       uint64 // of these, the first token was expected sooner on the replica chosen
	PromptTokens uint64
	// Expected of the replica chosen, and of the one that served.
	ChosenCached, ServedCached uint64  // prompt tokens in its cache
	ChosenTTFT, ServedTTFT     float64 // seconds
}

// forecast is the pool's expectation of each replica for one request.
type forecast struct {
	shadowed bool
	members  uint64 // the changes of the membership by then
	chosen   int    // slot; -1 = none
	replicas []expectation
}

// expectation is the expected cost of a request on one replica; a ttft of 0 means that it
// was not open.
type expectation struct {
	cached int32
	ttft   float32
}

// shadowShare is PoolConfig.Shadow, for readers without the pool's lock.
type shadowShare struct{ bits atomic.Uint64 }

// Shadows reports whether the proxy is to place r by itself: the same for all
// requests of a session.
func (s *shadowShare) Shadows(r *Request) bool {
	share := math.Float64frombits(s.bits.Load())
	return share > 0 && (share >= 1 || float64(scramble(r.Key()+golden))/math.MaxUint64 < share)
}

// shadowed ranks r like decide, and leaves it to the proxy.
func shadowed(p *Pool, r *Request, d *Decision, now time.Duration) {
	rankWhole(p, r, now)
	f := forecast{shadowed: true, members: p.stats.MembershipChanges, chosen: -1}
	d.Why = p.whyNone(r)
	if len(p.order) > 0 {
		chosen := p.replicas[p.order[0]]
		d.Server, d.Why = chosen.name, "shadow"
		f.chosen = chosen.slot
		chosen.chosen++
	}
	p.records.add(p, r, d, now)
	d.Server, d.Unsteered = "", true
	w := unplace(p, r, now)
	i := int(p.unplaced.index(w))
	for len(p.shadow.forecasts) <= i {
		p.shadow.forecasts = append(p.shadow.forecasts, forecast{})
	}
	kept := &p.shadow.forecasts[i]
	f.replicas = kept.replicas[:0]
	*kept = f
	if f.chosen >= 0 {
		kept.expect(p)
	}
}

// expect fills in what is expected of the replicas for the request just ranked.
func (f *forecast) expect(p *Pool) {
	v := &p.view
	for _, r := range p.replicas {
		for len(f.replicas) <= r.slot {
			f.replicas = append(f.replicas, expectation{})
		}
	}
	for _, i := range p.open {
		f.replicas[p.replicas[i].slot] = expectation{
			cached: int32(v.Cached(i)),
			ttft:   max(float32((v.PrefillBacklog(i)+v.PrefillCost(i))/v.PrefillSpeed(i)), math.SmallestNonzeroFloat32),
		}
	}
}

// of is the forecast for the request in that slot, nil if it was not left to the
// proxy on purpose.
func (s *shadow) of(slot int32) *forecast {
	if int(slot) >= len(s.forecasts) || !s.forecasts[slot].shadowed {
		return nil
	}
	return &s.forecasts[slot]
}

// served compares what was expected of the chosen replica with what was expected of the one
// that serves r, if both were open when the request came.
func (s *shadow) served(f *forecast, r *Request, replica *Replica, members uint64) {
	s.counts.Requests++
	if f.chosen < 0 || f.members != members || replica.slot >= len(f.replicas) {
		return
	}
	chosen, served := f.replicas[f.chosen], f.replicas[replica.slot]
	if chosen.ttft == 0 || served.ttft == 0 {
		return
	}
	c := &s.counts
	c.Compared++
	c.PromptTokens += uint64(max(r.Input, 0))
	c.ChosenCached += uint64(chosen.cached)
	c.ServedCached += uint64(served.cached)
	c.ChosenTTFT += float64(chosen.ttft)
	c.ServedTTFT += float64(served.ttft)
	if f.chosen == replica.slot {
		c.Same++
	} else if chosen.ttft < served.ttft {
		c.Sooner++
	}
}

// ShadowStatus compares the pool's choices with the proxy's.
type ShadowStatus struct {
	// Share of the requests is left to the proxy.
	Share       float64 `json:"share"`
	Requests    uint64  `json:"requests"`
	Compared    uint64  `json:"compared"`
	SameReplica float64 `json:"same_replica"` // share of those compared
	Sooner      float64 `json:"sooner"`       // share of those compared
	// Expected on the replica chosen, and on the one that served.
	HitRateChosen float64 `json:"hit_rate_chosen"`
	HitRateServed float64 `json:"hit_rate_served"`
	TTFTChosen    float64 `json:"ttft_chosen_s"` // mean
	TTFTServed    float64 `json:"ttft_served_s"`

	Counts ShadowCounts `json:"-"`
}

// status is nil for a pool that decides all requests.
func (s *shadow) status(share float64) *ShadowStatus {
	if share <= 0 {
		return nil
	}
	c := s.counts
	n, tokens := float64(max(c.Compared, 1)), float64(max(c.PromptTokens, 1))
	return &ShadowStatus{
		Share: share, Requests: c.Requests, Compared: c.Compared,
		SameReplica: float64(c.Same) / n, Sooner: float64(c.Sooner) / n,
		HitRateChosen: float64(c.ChosenCached) / tokens, HitRateServed: float64(c.ServedCached) / tokens,
		TTFTChosen: c.ChosenTTFT / n, TTFTServed: c.ServedTTFT / n, Counts: c,
	}
}
