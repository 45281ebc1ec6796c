package decider

import "pointsman/decider/kvcache"

// PoolStats are a pool's counts since the start.
type PoolStats struct {
	Decisions         uint64       // asked
	Undecided         uint64       // of these, no replica could be chosen
	ClientGone        uint64       // of these, the client had left already
	Outcomes          [Ends]uint64 // reported by the feed
	Unreserved        uint64       // of these, of requests that had no reservation
	Adopted           uint64       // reservations made from the feed: the proxy went ahead by itself
	Mismatches        uint64       // served by another replica than the chosen one
	Expired           uint64       // reservations ended without an outcome
	Replaced          uint64       // reservations ended by a second decision
	MembershipChanges uint64
	PolicyPanics      uint64 // recovered where no proxy waited for a decision
	InputTokens       uint64 // prompt tokens of the decided, estimated
	CachedTokens      uint64 // of these, believed cached on the replica chosen
	// SlowTokens are those of them that are on slower tiers than the GPU.
	SlowTokens       [kvcache.Slower]uint64
	AchievableTokens uint64 // of these, believed cached on any replica
}

// Passed reports whether the proxy passes the replica over, though nothing else is known
// against it.
func (r *ReplicaStatus) Passed() bool {
	return (r.State == "up" || r.State == "ejected") && r.PassedOver >= passedEnough
}

// ReplicaStatus is a replica at one moment.
type ReplicaStatus struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	State   string `json:"state"`          // up, down, draining, ejected, full
	Role    string `json:"role,omitempty"` // prefill or decode; "" = both
	// Seen reports whether an answer, its engine's report or a health check has
	// shown that it works, since it came up.
	Seen     bool   `json:"seen"`
	Weight   int    `json:"weight"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // of these, before their first byte
	Tokens   int    `json:"tokens"`  // of these, prompt and expected output
	Chosen   uint64 `json:"chosen"`  // decisions since the start
	Served   uint64 `json:"served"`
	Failed   uint64 `json:"failed"`
	// PassedOver are the decisions in a row that the proxy gave to another replica without
	// trying this one: it has no server of this name, or holds it for down.
	PassedOver uint64  `json:"passed_over,omitempty"`
	EjectedFor float64 `json:"ejected_for_s,omitempty"`
	Listed     bool    `json:"-"` // in the configuration, not found at the proxy
	// Limit is the most requests it may have in flight; 0 = any number.
	Limit int `json:"max_requests,omitempty"`
	// Wait is how long another prompt would wait before it is computed, as predicted, in
	// seconds.
	Wait float64 `json:"predicted_wait_s"`
	// KVUsage is the used share of its KV cache, 0 to 1; -1 = its size is not known.
	KVUsage float64 `json:"kv_usage"`

	CacheTokens  int     `json:"cache_tokens"`  // size of the KV cache, as far as known
	PrefillSpeed float64 `json:"prefill_speed"` // learned, tokens/s
	// SignalAge is how long ago the engine last reported its load, in seconds; -1
	// = never.
	SignalAge float64 `json:"signal_age_s"`
	// What the engine has counted since the agent reads its metrics.
	PromptTokens uint64 `json:"engine_prompt_tokens,omitempty"`
	QueryTokens  uint64 `json:"engine_query_tokens,omitempty"` // looked for in the prefix cache
	HitTokens    uint64 `json:"engine_hit_tokens,omitempty"`   // of these, found there
}

// PoolStatus is a pool at one moment.
type PoolStatus struct {
	Name         string          `json:"name"`
	Policy       string          `json:"policy"`
	PolicyFlow   string          `json:"-"` // with its options
	Models       []string        `json:"models"`
	Replicas     []ReplicaStatus `json:"replicas"`
	Reservations int             `json:"reservations"`
	Decisions    uint64          `json:"decisions"`
	// FellOpen counts the requests that the proxy placed by itself.
	FellOpen uint64 `json:"fell_open"`
	// BytesPerToken is how much prompt text makes a token.
	BytesPerToken float64 `json:"bytes_per_token"`
	// PromptTokens and CachedTokens are the prompts of all decisions, and what
	// was believed cached of them.
	PromptTokens uint64 `json:"prompt_tokens"`
	CachedTokens uint64 `json:"cached_tokens"`
	// HitRatio is nil while no prompts come, and where the policy does not look at
	// prompts.
	HitRatio *HitRatio         `json:"hit_ratio,omitempty"`
	Outcomes map[string]uint64 `json:"outcomes"`
	// Admission is the queue, nil when requests do not wait.
	Admission *AdmissionStatus `json:"admission,omitempty"`
	// Legs are the counts of prompts computed on prefill replicas, nil without these.
	Legs *LegCounts `json:"legs,omitempty"`
	// Shadow is the comparison with the proxy's choices, nil for a pool that decides all
	// requests.
	Shadow *ShadowStatus `json:"shadow,omitempty"`
	Stats  PoolStats     `json:"-"`
	// PolicyStats are the counters of the pool's filters, and those of its policy, if any.
	PolicyStats []Counter `json:"-"`
}

// seenSignals is the age, in seconds, up to which an engine's report shows that it works.
const seenSignals = 10

// Status returns the pool as it is now.
func (p *Pool) Status() PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	s := PoolStatus{
		Name:          p.name,
		Policy:        p.config.PolicyName,
		PolicyFlow:    p.config.PolicyFlow,
		Models:        append(append([]string{}, p.config.Models...), p.config.LoRA...),
		Reservations:  p.account.len(),
		Decisions:     p.stats.Decisions,
		FellOpen:      p.stats.Adopted + p.stats.Unreserved,
		BytesPerToken: p.BytesPerToken(), PromptTokens: p.stats.InputTokens, CachedTokens: p.stats.CachedTokens,
		Outcomes:  map[string]uint64{},
		Stats:     p.stats,
		Admission: p.admission.status(now),
		Shadow:    p.shadow.status(p.config.Shadow),
	}
	if p.caches.model != nil {
		s.HitRatio = p.hits.ratio(now)
	}
	for end, n := range p.stats.Outcomes {
		s.Outcomes[End(end).String()] = n
	}
	p.view.Now = now
	for i, r := range p.replicas {
		age := -1.0
		if r.signals.Known {
			age = (now - r.signals.At).Seconds()
		}
		usage := -1.0
		if r.CacheTokens() > 0 {
			usage = p.view.KVUsage(i)
		}
		role := ""
		if r.role != RoleBoth {
			role = r.role.String()
			counts := p.legs.counts
			s.Legs = &counts
		}
		s.Replicas = append(s.Replicas, ReplicaStatus{
			Role:  role,
			Limit: r.limit, Wait: p.load.backlog(r, now) / max(p.load.speedOf(r), 1), KVUsage: usage,
			Name: r.name, Address: r.address, State: r.state(now), Seen: r.seen || age >= 0 && age < seenSignals, Weight: r.weight,
			InFlight: r.inFlight, Waiting: r.waiting, Tokens: r.tokens,
			Chosen: r.chosen, Served: r.served, Failed: r.failed, PassedOver: r.passed,
			EjectedFor: max(0, r.ejectedUntil()-now).Seconds(), Listed: r.listed,
			CacheTokens: r.CacheTokens(), PrefillSpeed: p.load.speedOf(r), SignalAge: age,
			PromptTokens: r.reported.prompt, QueryTokens: r.reported.queries, HitTokens: r.reported.hits,
		})
	}
	s.Stats.PolicyPanics = p.panics.n
	s.PolicyStats = p.filters.Counters(s.PolicyStats)
	s.PolicyStats = p.counters(s.PolicyStats)
	return s
}
