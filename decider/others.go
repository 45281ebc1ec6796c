package decider

import "time"

// OfOthers is what other agents have published about a replica.
type OfOthers struct {
	Age      float64 `json:"age_s"`           // since the last report on the replica
	InFlight int     `json:"in_flight"`       // requests that they have there,
	Prefill  float64 `json:"prefill_backlog"` // the prefill cost of those whose first token has not come,
	Cached   int     `json:"cached_tokens"`   // and how much of the prompt such requests share
}

// publishedOn returns what other agents have published about replica, for r; nil if
// nothing.
func (s *peers) publishedOn(replica *Replica, r *Request, now time.Duration) *OfOthers {
	if replica.peersAt == 0 {
		return nil
	}
	t := &OfOthers{Age: (now - replica.peersAt).Seconds(), InFlight: replica.fromPeers}
	list := &s.pool.account.reservations
	for i := list.slots[0].next; i != 0; i = list.at(i).next {
		v := list.at(i)
		if v.replica != replica || v.from == "" {
			continue
		}
		if v.prefill.queued {
			t.Prefill += v.prefill.cost
		}
		n := 0
		for n < min(len(r.Blocks), len(v.request.Blocks)) && r.Blocks[n] == v.request.Blocks[n] {
			n++
		}
		t.Cached = max(t.Cached, n*s.pool.caches.blockTokens)
	}
	return t
}
