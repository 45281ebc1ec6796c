// Package history keeps the load of the replicas in the last minutes, for the status
// page: how many requests each had, and what the engines counted.
package history

import (
	"sync"
	"time"

	"pointsman/decider"
)

// Slots is how many samples are kept of each replica, and Step the time between
// them.
const (
	Slots = 60
	Step  = 5 * time.Second
)

// marks is how many counts are kept, one every markSteps samples: together they span
// what the samples do.
const (
	marks     = 6
	markSteps = Slots / (marks - 1)
)

// History is safe for concurrent use.
type History struct {
	mu    sync.Mutex
	last  time.Time // of the last sample
	n     int       // samples so far
	pools map[string]*pool
}

type pool struct {
	replicas map[string]*replica
	rates    [13]counts // of the last minute, one for each sample
}

type replica struct {
	load  [Slots]uint16
	from  int // the first sample, in the count of History.n
	marks [marks]counts
	mark0 counts // when it came
	seen  int    // the last sample
}

// counts are counters since the start of the agent.
type counts struct {
	sample    int // in the count of History.n
	at        time.Time
	decisions uint64
	failed    uint64
	queries   uint64
	hits      uint64
}

// Add takes a sample, if the last is at least a Step ago. pools is called only then.
func (h *History) Add(now time.Time, pools func() []decider.PoolStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n > 0 && now.Sub(h.last) < Step-Step/10 {
		return
	}
	list := pools()
	if h.pools == nil {
		h.pools = map[string]*pool{}
	}
	h.last = now
	known := map[string]bool{}
	for i := range list {
		s := &list[i]
		known[s.Name] = true
		p := h.pools[s.Name]
		if p == nil {
			p = &pool{replicas: map[string]*replica{}}
			h.pools[s.Name] = p
		}
		p.add(h.n, now, s)
	}
	for name := range h.pools {
		if !known[name] {
			delete(h.pools, name)
		}
	}
	h.n++
}

func (p *pool) add(n int, now time.Time, s *decider.PoolStatus) {
	c := counts{sample: n + 1, at: now, decisions: s.Decisions, failed: s.Outcomes["failed"] + s.Outcomes["refused"] + s.Outcomes["died"]}
	p.rates[n%len(p.rates)] = c
	for i := range s.Replicas {
		r := &s.Replicas[i]
		m := p.replicas[r.Name]
		own := counts{sample: n + 1, at: now, decisions: r.Chosen, failed: r.Failed, queries: r.QueryTokens, hits: r.HitTokens}
		if m == nil || m.seen != n-1 { // new, or back
			m = &replica{from: n, mark0: own}
			p.replicas[r.Name] = m
		}
		m.seen = n
		m.load[n%Slots] = uint16(min(max(r.InFlight, 0), 1<<16-1))
		if n%markSteps == 0 {
			m.marks[n/markSteps%marks] = own
		}
	}
	for name, m := range p.replicas {
		if m.seen != n {
			delete(p.replicas, name)
		}
	}
}

// Load is the requests in flight of a replica, the oldest sample first; -1 where there
// is none. The slice has Slots elements.
type Load [Slots]int

// Pool is the history of a pool.
type Pool struct {
	Rate    float64 // decisions per second, of the last minute
	Failed  uint64  // requests that replicas failed, of the last minute
	Most    int     // the largest load of a replica
	Loads   map[string]*Load
	Hits    map[string]float64 // by replica, the share of prefix tokens that its engine found; absent where it reports none
	HitRate float64            // of all replicas; -1 = no engine reports
}

// Pool returns the last minutes of a pool; s is its state now. It is nil before the
// first sample.
func (h *History) Pool(now time.Time, s *decider.PoolStatus) *Pool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pools[s.Name]
	if p == nil {
		return nil
	}
	x := &Pool{Loads: make(map[string]*Load, len(p.replicas)), Hits: map[string]float64{}, HitRate: -1}
	if oldest := p.oldest(h.n); oldest != nil {
		if span := now.Sub(oldest.at).Seconds(); span > 0 {
			x.Rate = float64(s.Decisions-min(oldest.decisions, s.Decisions)) / span
		}
		failed := s.Outcomes["failed"] + s.Outcomes["refused"] + s.Outcomes["died"]
		x.Failed = failed - min(oldest.failed, failed)
	}
	var queries, hits uint64
	for i := range s.Replicas {
		r := &s.Replicas[i]
		m := p.replicas[r.Name]
		if m == nil {
			continue
		}
		load := m.loads(h.n)
		for _, v := range load {
			x.Most = max(x.Most, v)
		}
		x.Loads[r.Name] = load
		c := m.oldest(h.n)
		if r.QueryTokens > c.queries && r.HitTokens >= c.hits {
			q, k := r.QueryTokens-c.queries, r.HitTokens-c.hits
			queries, hits = queries+q, hits+k
			x.Hits[r.Name] = min(1, float64(k)/float64(q))
		}
	}
	if queries > 0 {
		x.HitRate = min(1, float64(hits)/float64(queries))
	}
	return x
}

// oldest is the oldest count of the last minute, nil if there is none.
func (p *pool) oldest(n int) *counts {
	for i := max(0, n-len(p.rates)); i < n; i++ {
		if c := &p.rates[i%len(p.rates)]; c.sample == i+1 {
			return c
		}
	}
	return nil
}

// oldest is the oldest count of the time that the samples span.
func (m *replica) oldest(n int) counts {
	c := m.mark0
	for _, mark := range m.marks {
		if mark.sample > n-Slots && (c.sample <= n-Slots || mark.sample < c.sample) {
			c = mark
		}
	}
	return c
}

func (m *replica) loads(n int) *Load {
	var l Load
	for k := range Slots {
		i := n - Slots + k
		if l[k] = -1; i >= m.from && i >= 0 {
			l[k] = int(m.load[i%Slots])
		}
	}
	return &l
}
