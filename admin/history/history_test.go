package history

import (
	"testing"
	"time"

	"pointsman/decider"
)

// The last samples are kept, the oldest first; rates and hit rates are those of the
// last minutes, not since the start.
func TestHistory(t *testing.T) {
	var h History
	now := time.Unix(1e9, 0)
	s := decider.PoolStatus{Name: "llama", Outcomes: map[string]uint64{}, Replicas: []decider.ReplicaStatus{{Name: "r1"}, {Name: "r2"}}}
	if h.Pool(now, &s) != nil {
		t.Error("there is a history before the first sample")
	}
	calls := 0
	add := func(d time.Duration) {
		now = now.Add(d)
		h.Add(now, func() []decider.PoolStatus { calls++; return []decider.PoolStatus{s} })
	}
	for n := range 200 {
		s.Decisions += 50
		s.Outcomes["failed"]++
		r := &s.Replicas[0]
		r.InFlight = n
		r.QueryTokens += 100
		if n >= 100 { // the first minutes found nothing
			r.HitTokens += 75
		}
		add(Step)
		add(time.Second) // too early
		now = now.Add(-time.Second)
	}
	if calls != 200 {
		t.Errorf("%d samples", calls)
	}
	p := h.Pool(now, &s)
	if p.Loads["r1"][0] != 140 || p.Loads["r1"][Slots-1] != 199 || p.Loads["r2"][Slots-1] != 0 || p.Most != 199 {
		t.Errorf("%v", p.Loads["r1"])
	}
	if p.Rate < 9.9 || p.Rate > 10.1 || p.Failed != 12 {
		t.Errorf("%v decisions/s, %d failed", p.Rate, p.Failed)
	}
	if p.HitRate != .75 || p.Hits["r1"] != .75 || len(p.Hits) != 1 {
		t.Errorf("hit rates %v, %v", p.HitRate, p.Hits)
	}

	// A replica that comes has no past, and one that left no present.
	s.Replicas = []decider.ReplicaStatus{{Name: "r2"}, {Name: "r3", InFlight: 7}}
	add(Step)
	p = h.Pool(now, &s)
	if l := p.Loads["r3"]; l[Slots-2] != -1 || l[Slots-1] != 7 || p.Loads["r1"] != nil || p.HitRate != -1 {
		t.Errorf("%v, %v", l, p)
	}
	h.Add(now.Add(Step), func() []decider.PoolStatus { return nil })
	if h.Pool(now, &s) != nil {
		t.Error("a pool that is gone has a history")
	}
}
