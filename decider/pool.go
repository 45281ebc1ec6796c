package decider

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// PoolConfig describes a pool.
type PoolConfig struct {
	Name       string
	Models     []string
	LoRA       []string
	Policy     Policy // must not be shared between pools
	PolicyName string // what Decision.Why says
	// PolicyKey is equal for equal policies with equal options: then the pool
	// keeps the policy it has, with what that has learned.
	PolicyKey string
	Replicas  []ReplicaConfig
	Discover  bool          // replicas come from the proxy, by Pool.Discovered
	Unfound   bool          // Replicas are not found yet, and may not be all there are
	Limit     int           // most requests in flight on a replica; 0 = none
	SlowStart time.Duration // a replica that came up takes its full share after this
	Lease     time.Duration // a reservation without news ends after this; 0 = DefaultLease

	// Filters narrow the candidates, in this order, before the policy ranks them.
	Filters []Filter
	// Spill is how far, in requests, a filter's choice may be above the least
	// loaded candidate before the filter gives way; see View.Keep.
	Spill      int
	LoRASlots  int    // adapters that an engine keeps loaded, if it does not report it; 0 = DefaultLoRASlots
	Node, Zone string // where the agent runs, as in ReplicaConfig

	Admission *Admission // who waits and who is refused; nil = all are sent at once

	// RetryAfter is what clients are told, with a 503, while no replica is up;
	// 0 = the proxy does what it would do alone.
	RetryAfter time.Duration

	BlockTokens int // prompt tokens in one of Request.Blocks; 0 = DefaultBlockTokens
	CacheTokens int // KV cache of a replica in tokens, as far as known; 0 = DefaultCacheTokens
}

// DefaultBlockTokens is how many tokens the blocks of Read hold.
const DefaultBlockTokens = BlockBytes / bytesPerToken

// DefaultCacheTokens is about what a replica holds whose model fits its
// hardware: the space that a 70B model leaves on four accelerators of 80 GB,
// or an 8B model on one. Half or twice as much costs some percent of the time
// to first token.
const DefaultCacheTokens = 500_000

// DefaultLoRASlots is how many adapters an engine is taken to keep loaded.
const DefaultLoRASlots = 8

// DefaultLease is long enough for a long answer and short enough that a lost
// log line does not weigh on a replica for the rest of the day.
const DefaultLease = 10 * time.Minute

// Pool is the replicas that serve one model. Choosing and reserving are one
// step under its lock, so that a burst spreads instead of piling up.
type Pool struct {
	name       string
	seed       []byte // the name again: prefixes of one pool are comparable
	clock      Clock
	usesPrefix atomic.Bool
	tokens     atomic.Pointer[TokenOptions] // nil = the policy does not look at tokens

	mu       sync.Mutex
	config   PoolConfig
	policy   Policy
	observer Observer // policy, when it is one
	terms    []string // the policy's
	replicas []*Replica
	byName   map[string]*Replica

	open         []int         // indexes of the replicas that take requests
	plain        bool          // no limit is set: open is all there is to know
	ejectedUntil time.Duration // the latest of the replicas'
	slowUntil    time.Duration // when the last slow start ends

	filters filterChain

	bytesPerToken bytesPerTokenEstimator

	admission  admission     // what waits
	reportedAt time.Duration // when the proxy last reported anything of a request
	statesAt   time.Duration // when it last reported the state of its servers
	anyLists   bool          // some engine has listed its adapters

	account account
	gone    tombstones
	records records
	stats   PoolStats

	view  View
	some  []int // scratch for candidates
	order []int // scratch for the policy's answer
}

func newPool(name string, clock Clock, r *rand.Rand) *Pool {
	p := &Pool{
		name:     name,
		seed:     []byte(name),
		clock:    clock,
		byName:   map[string]*Replica{},
		account:  account{reservations: newReservations()},
		gone:     newTombstones(),
		statesAt: -blindAfter - 1,
		view:     View{Rand: r},
	}
	p.view.pool, p.admission.pool = p, p
	p.account.load.reservations = &p.account.reservations
	return p
}

// Name is the pool's name: HAProxy's backend, or nginx's upstream.
func (p *Pool) Name() string { return p.name }

// configure applies c. Replicas that keep their name keep their state.
func (p *Pool) configure(c PoolConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.policy == nil
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = DefaultBlockTokens
		if t, ok := c.Policy.(TokenUser); ok {
			c.BlockTokens = t.Tokens().BlockTokens
		}
	}
	if c.CacheTokens == 0 {
		c.CacheTokens = DefaultCacheTokens
	}
	if c.LoRASlots == 0 {
		c.LoRASlots = DefaultLoRASlots
	}
	same := !first && c.PolicyKey == p.config.PolicyKey
	p.config = c
	if !same {
		p.policy = c.Policy
		p.observer, _ = c.Policy.(Observer)
		p.terms = nil
		if t, ok := c.Policy.(Termed); ok {
			p.terms = t.Terms()
		}
		u, ok := c.Policy.(PrefixUser)
		p.usesPrefix.Store(ok && u.UsesPrefix())
		before := p.tokens.Load()
		p.tokens.Store(nil)
		if t, ok := c.Policy.(TokenUser); ok {
			p.tokens.Store(t.Tokens())
		}
		if before != nil || p.tokens.Load() != nil {
			p.account.caches.close(p.replicas)
		}
	}
	p.setBlockTokens()
	p.filters.configure(c.Filters, c.PolicyName)
	p.account.sessions.enable(p.filters.usesSessions())
	p.account.caches.enable(p.usesPrefix.Load(), p.replicas)
	if !p.usesPrefix.Load() {
		p.view.depth, p.view.best = nil, 0
	}
	now := p.clock()
	if first {
		now -= c.SlowStart // a pool that starts is not slow as a whole
	}
	keep := p.replicas[:0:0]
	seen := map[string]bool{}
	for _, rc := range c.Replicas {
		r := p.byName[rc.Name]
		if r == nil {
			r = &Replica{name: rc.Name, since: now, weight: max(rc.Weight, 1)}
		}
		if !r.listed {
			r.listed, r.down, r.draining = true, false, false
		}
		r.address, r.zone, r.node = rc.Address, rc.Zone, rc.Node
		r.limit = rc.Limit
		if r.limit == 0 {
			r.limit = c.Limit
		}
		if rc.Weight > 0 {
			r.weight = rc.Weight
		}
		r.cacheTokens = rc.CacheTokens
		if r.signals.CacheTokens > 0 {
			r.cacheTokens = r.signals.CacheTokens
		}
		keep, seen[rc.Name] = append(keep, r), true
	}
	if c.Discover {
		for _, r := range p.replicas {
			if !seen[r.name] && !r.listed {
				r.limit, r.cacheTokens = c.Limit, r.signals.CacheTokens
				keep = append(keep, r)
			}
		}
	}
	p.setReplicas(keep)
	p.admission.configure(c.Admission, now)
}

// setReplicas makes list the membership. The caller holds the lock.
func (p *Pool) setReplicas(list []*Replica) {
	for _, r := range p.replicas {
		r.index = -1
	}
	assignSlots(list, p.replicas)
	clear(p.byName)
	for i, r := range list {
		r.index = i
		p.byName[r.name] = r
		if r.cacheTokens == 0 {
			r.cacheTokens = p.config.CacheTokens
		}
		r.near = p.nearness(r)
		if r.adapters.slots = r.slotsReported; r.slotsReported == 0 {
			r.adapters.slots = p.config.LoRASlots
		}
	}
	p.account.caches.setReplicas(p.replicas, list)
	p.replicas = list
	p.view.Replicas, p.view.even = list, true
	for _, r := range list {
		p.view.even = p.view.even && r.weight == list[0].weight
	}
	p.refresh()
	p.stats.MembershipChanges++
	if m, ok := p.policy.(MemberObserver); ok {
		m.Members(list)
	}
}

// Decision is the answer to one request.
type Decision struct {
	Pool      string
	Server    string    // "" = the proxy balances by itself
	Fallbacks [2]string // to use when the server is down, in order; "" = none
	Status    int       // not 0: answer with this HTTP status instead
	Reason    string    // the message for the client; safe inside a JSON string
	Retry     int       // seconds, for Retry-After; 0 = none
	Why       string    // one word for logs and records

	// With an admission only:
	Band    string        // the request's
	Wait    time.Duration // how long it was held
	Class   int           // its place in the proxy's queues, lowest first,
	Offset  int           // and in its class, milliseconds; both only if
	Ordered bool          // the proxy is to queue
}

// Decide chooses a replica for r, reserves it and fills d. r.Pool must be set,
// as Read does. Decide does not allocate in steady state.
func (p *Pool) Decide(r *Request, d *Decision) {
	p.mu.Lock()
	defer p.mu.Unlock() // also when a policy panics
	now := p.clock()
	*d = Decision{Pool: p.name}
	seen := r.Blocks
	r.Blocks = p.account.caches.extrapolate(r, p.config.BlockTokens, now)
	defer func() { r.Blocks = seen }()
	p.stats.Decisions++
	if p.gone.pop(r.ID) {
		d.Why = "client_gone"
		p.stats.ClientGone++
		return
	}
	p.decide(r, d, now)
}

// decide chooses a replica for r as it comes. The caller holds the lock.
func (p *Pool) decide(r *Request, d *Decision, now time.Duration) {
	p.rank(r, now)
	p.grant(r, d, now)
}

// grant reserves the first replica of p.order, as rank left it, for r.
func (p *Pool) grant(r *Request, d *Decision, now time.Duration) {
	if len(p.order) == 0 {
		d.Why = p.noneOpen()
		p.stats.Undecided++
		p.account.load.demand.add(prefillCost(r.Input, r.Input), now)
		if len(p.open) == 0 && p.config.RetryAfter > 0 {
			d.Status, d.Reason = 503, noReplica
			d.Retry = int((p.config.RetryAfter + time.Second - 1) / time.Second)
		}
		p.records.add(p, r, d, now)
		return
	}
	chosen := p.replicas[p.order[0]]
	d.Server, d.Why = chosen.name, p.filters.why()
	for i, o := range p.order[1:min(3, len(p.order))] {
		d.Fallbacks[i] = p.replicas[o].name
	}
	p.records.add(p, r, d, now)
	p.filters.count()
	chosen.chosen++
	p.stats.InputTokens += uint64(max(r.Input, 0))
	p.stats.CachedTokens += uint64(p.view.Cached(chosen.index))
	p.reserve(r, chosen, now)
	if p.observer != nil {
		p.observer.Reserved(r, chosen.index)
	}
}

// noReplica is what clients are told while none is open.
const noReplica = "no replica of the model is up; one may be starting"

// noneOpen says why no replica may be chosen.
func (p *Pool) noneOpen() string {
	switch {
	case len(p.replicas) == 0:
		return "no_replicas"
	case len(p.open) == 0:
		return "all_down"
	}
	return "all_full"
}

// rank fills p.order with the policy's order and fallbacks, best first.
func (p *Pool) rank(r *Request, now time.Duration) {
	v := &p.view
	v.Now = now
	v.Candidates = p.candidates(r, now)
	v.Candidates = p.admission.mask.filter(v.Candidates)
	p.filters.begin(v.Candidates)
	p.order = p.order[:0]
	if len(v.Candidates) == 0 {
		return
	}
	p.filters.narrow(r, v)
	p.view.matchPrefix(r)
	if v.width = len(p.terms); v.width > 0 {
		need := v.width * len(v.Candidates)
		if cap(v.terms) < need {
			v.terms = make([]float64, 2*need)
		}
		v.terms = v.terms[:need]
	}
	p.order = p.policy.Rank(r, v, p.order)
	if len(p.order) == 0 {
		p.order = append(p.order, v.Candidates[v.Rand.IntN(len(v.Candidates))])
	}
	p.addFallbacks(v.Candidates)
	p.addFallbacks(p.filters.before)
}

// addFallbacks fills the order up to a decision and two fallbacks. Each is the
// less loaded of two replicas of from, picked at random.
func (p *Pool) addFallbacks(from []int) {
	n := len(from)
	for range min(3, n) - min(len(p.order), 3) {
		best := -1
		for range 2 {
			i := p.view.Rand.IntN(n)
			for has(p.order, from[i]) {
				i = (i + 1) % n
			}
			c := from[i]
			if best < 0 || p.replicas[c].Load() < p.replicas[best].Load() {
				best = c
			}
		}
		p.order = append(p.order, best)
	}
}

func has(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// close empties a pool that the configuration no longer has. Its reservations
// end with it.
func (p *Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.admission.drain(now)
	for v := p.account.oldest(); v != nil; v = p.account.oldest() {
		p.release(v, Outcome{End: Expired}, now)
	}
	p.config.Discover = false
	p.setReplicas(nil)
}
