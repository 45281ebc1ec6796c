package decider

import (
	"math"
	"math/rand/v2"
	"time"

	"pointsman/decider/budget"
)

// How many decisions a pool remembers, and how many candidates of each.
const (
	recordsKept    = 64
	recordedPicks  = 3
	recordedOthers = 61
)

// records is a ring of the last decisions, written without allocation once it is
// full. It holds no prompt text, session or key. It lives under the pool's lock.
type records struct {
	ring [recordsKept]record
	next int
	n    int
	seq  uint64 // of the last one
}

type record struct {
	at         time.Duration
	id         ID
	model, why string
	server     string
	prefill    string
	input      int
	output     int
	session    bool
	stream     bool
	cut        bool
	candidates int
	members    []*Replica // of the pool at that time
	picks      []pick
	terms      []float64 // per pick
	width      int
}

// pick is a candidate: its index among the members of its time, and what it had in
// flight. It holds no name, so that it is cheap to write.
type pick struct{ member, inFlight int32 }

func (s *records) add(p *Pool, r *Request, d *Decision, now time.Duration) {
	p.watch.decided(r, d, now)
	e := &s.ring[s.next]
	s.next = (s.next + 1) % recordsKept
	s.n = min(s.n+1, recordsKept)
	s.seq++
	kept := p.view.Candidates[:min(len(p.view.Candidates), recordedPicks+recordedOthers)]
	picks, terms := e.picks[:0], e.terms[:0]
	*e = record{
		at: now, id: r.ID, model: r.Model, why: d.Why, server: d.Server, input: r.Input, output: r.Output,
		session: r.HasSession, stream: r.Stream, cut: r.Cut, candidates: len(p.view.Candidates),
		members: p.replicas, width: len(p.terms),
	}
	if cap(picks) < len(kept) {
		picks = make([]pick, len(kept))
	}
	e.picks = picks[:len(kept)]
	for c, i := range kept {
		e.picks[c] = pick{int32(i), int32(p.replicas[i].inFlight)}
	}
	e.terms = append(terms, p.view.terms[:len(kept)*e.width]...)
}

// prefilledBy notes the prefill replica of the last decision.
func (s *records) prefilledBy(r *Replica) {
	s.ring[(s.next-1+recordsKept)%recordsKept].prefill = r.name
}

// shownID is how much of an id is shown: enough to find the request in a log, too
// little to report its end in the proxy's place.
const shownID = 8

// Record is one past decision.
type Record struct {
	Age float64 `json:"age_s"`
	Seq uint64  `json:"seq"` // counts the pool's decisions
	ID  string  `json:"id"`  // its beginning

	Pool       string      `json:"pool"`
	Model      string      `json:"model,omitempty"`
	Server     string      `json:"server,omitempty"`
	Prefill    string      `json:"prefill,omitempty"` // the replica that computes the prompt for it
	Why        string      `json:"why"`
	Input      int         `json:"input_tokens"`
	Output     int         `json:"output_tokens"` // -1 = unknown
	Session    bool        `json:"session"`
	Stream     bool        `json:"stream"`
	Cut        bool        `json:"cut,omitempty"`
	Candidates int         `json:"candidates"`
	Considered []Candidate `json:"considered"`
}

// Candidate is a replica as a decision saw it.
type Candidate struct {
	Replica  string             `json:"replica"`
	InFlight int                `json:"in_flight"`
	Rank     int                `json:"rank,omitempty"`     // 1 = chosen, 2 and 3 = fallbacks
	Excluded string             `json:"excluded,omitempty"` // why it was no candidate
	Role     string             `json:"role,omitempty"`     // prefill or decode; "" = both
	Terms    map[string]float64 `json:"terms,omitempty"`    // what the policy computed
	// Cached is how many of the prompt's tokens its KV cache is believed to hold; nil if
	// the policy does not look at prompts, and for past decisions.
	Cached *int `json:"cached_tokens,omitempty"`
	// CachedCPU and CachedDisk are those of them that are not on its GPU: in the memory
	// of its host, and on storage or elsewhere.
	CachedCPU  int `json:"cached_cpu_tokens,omitempty"`
	CachedDisk int `json:"cached_disk_tokens,omitempty"`
	// SignalAge is how long ago its engine reported its load, in seconds; nil if it
	// never did, and for past decisions.
	SignalAge *float64 `json:"signal_age_s,omitempty"`
	// Saturated is why no waiting request is assigned to it now.
	Saturated string `json:"saturated,omitempty"`
	// Others is what of this other agents have published; nil if none has published
	// anything about the replica, and for past decisions.
	Others *OfOthers `json:"from_others,omitempty"`
}

// Records returns the last decisions of the pool, the newest first.
func (p *Pool) Records() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	s := &p.records
	out := make([]Record, 0, s.n)
	for k := range s.n {
		e := &s.ring[(s.next-1-k+2*recordsKept)%recordsKept]
		rec := Record{
			Age: (now - e.at).Seconds(), Seq: s.seq - uint64(k), ID: e.id.String()[:shownID], Pool: p.name, Model: e.model, Server: e.server, Prefill: e.prefill,
			Why: e.why, Input: e.input, Output: e.output, Session: e.session, Stream: e.stream, Cut: e.cut,
			Candidates: e.candidates,
		}
		for i, c := range e.picks {
			cand := Candidate{Replica: e.members[c.member].name, InFlight: int(c.inFlight)}
			if cand.Replica == e.server {
				cand.Rank = 1
			}
			if e.width == len(p.terms) {
				cand.Terms = named(p.terms, e.terms[i*e.width:])
			}
			rec.Considered = append(rec.Considered, cand)
		}
		out = append(out, rec)
	}
	return out
}

// named gives the terms their names. Terms that are no number, because they
// do not apply, are left out: JSON cannot express them.
func named(names []string, values []float64) map[string]float64 {
	m := make(map[string]float64, len(names))
	for i, n := range names {
		if v := values[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			m[n] = v
		}
	}
	return m
}

// Explanation is what the pool would do with a request now.
type Explanation struct {
	Pool       string      `json:"pool"`
	Policy     string      `json:"policy"`
	Model      string      `json:"model,omitempty"`
	Input      int         `json:"input_tokens"`
	Output     int         `json:"output_tokens"`
	Session    bool        `json:"session"`
	Stream     bool        `json:"stream"`
	Cut        bool        `json:"cut"`
	Blocks     int         `json:"prompt_blocks"`
	Server     string      `json:"server"`
	Fallbacks  []string    `json:"fallbacks"`
	Legs       *Legs       `json:"prefill,omitempty"` // in a pool with prefill replicas
	Why        string      `json:"why"`
	Refused    int         `json:"refused_with,omitempty"` // the status, when none is open and it is not held
	Candidates []Candidate `json:"candidates"`
	// Queue is where the request would stand, nil when requests do not wait.
	Queue *Place `json:"queue,omitempty"`
	// Budget is the state of its client's limits, nil when no limit fits it. The caller
	// fills it in.
	Budget *budget.Verdict `json:"budget,omitempty"`
}

// preview ranks r without side effects: the random source and the policy's turn stay as
// they are.
func preview(p *Pool, r *Request, now time.Duration) {
	chance := p.view.Rand
	defer func() { p.view.Rand = chance }()
	p.view.Rand = rand.New(rand.NewPCG(uint64(now), 0))
	if f, ok := p.policy.(Previewer); ok {
		f.Preview(func() { rankWhole(p, r, now) })
		return
	}
	rankWhole(p, r, now)
}

// Explain ranks r without reserving anything, and describes every replica.
func (p *Pool) Explain(r *Request) Explanation {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	preview(p, r, now)
	x := Explanation{
		Pool: p.name, Policy: p.config.PolicyName, Model: r.Model, Input: r.Input, Output: r.Output,
		Session: r.HasSession, Stream: r.Stream, Cut: r.Cut, Blocks: len(r.Blocks),
		Fallbacks: []string{}, Queue: p.admission.placeOf(r, now),
	}
	rank := map[string]int{}
	for k, i := range p.order[:min(len(p.order), recordedPicks)] {
		name := p.replicas[i].name
		rank[name] = k + 1
		if k == 0 {
			x.Server = name
		} else {
			x.Fallbacks = append(x.Fallbacks, name)
		}
	}
	if x.Server == "" {
		x.Why = p.whyNone(r)
		if x.Why == adapterDown {
			x.Refused = 503
		} else if len(p.open) == 0 && p.config.RetryAfter > 0 && !p.admission.holdsWithoutReplica(now) {
			x.Refused = 503
		}
	} else {
		x.Why = p.filters.why()
		if len(p.order) > 0 && hasRole(p, RolePrefill) {
			leg := p.legs.preview(p, r, p.replicas[p.order[0]], now)
			x.Legs = &leg
		}
	}
	position := map[int]int{}
	for c, i := range p.view.Candidates {
		position[i] = c
	}
	w := len(p.terms)
	for i, rep := range p.replicas {
		cand := Candidate{Replica: rep.name, InFlight: rep.inFlight, Rank: rank[rep.name]}
		if rep.cache != nil {
			gpu, slow := rep.cache.MatchTiers(r.Blocks)
			cached := max(0, min((gpu+int(slow.Sum()))*p.view.BlockTokens, r.Input-1))
			below := slowTokens(r.Input, gpu, slow, p.view.BlockTokens)
			cand.Cached, cand.CachedCPU, cand.CachedDisk = &cached, below[0], below[1]
		}
		if rep.signals.Known {
			age := (now - rep.signals.At).Seconds()
			cand.SignalAge = &age
		}
		if rep.role != RoleBoth {
			cand.Role = rep.role.String()
		}
		cand.Others = p.peers.publishedOn(rep, r, now)
		if rep.role == RolePrefill {
			p.legs.explain(p, &cand, rep, now)
		} else if c, ok := position[i]; ok {
			cand.Terms = named(p.terms, p.view.terms[c*w:(c+1)*w])
		} else if cand.Excluded = p.filters.excludedBy(rep.index); cand.Excluded != "" {
			// It might be chosen, if a filter did not exclude it.
		} else if cand.Excluded = rep.state(now); cand.Excluded == "up" && !p.serves(rep, r.LoRA) {
			cand.Excluded = "no adapter"
		} else if cand.Excluded == "up" {
			cand.Excluded = "slow start"
		}
		if p.admission.holds() {
			cand.Saturated = p.admission.capacity.saturation(rep, now)
		}
		x.Candidates = append(x.Candidates, cand)
	}
	return x
}
