package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// Replica is one engine server of a pool. Its fields belong to the pool's
// lock; the methods are for policies, which run under it.
type Replica struct {
	// What policies read of every replica comes first, in few cache lines.
	index       int            // in the pool's list; -1 once removed
	slot        int            // a small number that no other member has; see assignSlots
	inFlight    int            // reservations
	input       int            // prompt tokens of them
	cacheTokens int            // size of its KV cache, as configured, reported or assumed
	cacheSeen   int            // most tokens known to be in it at one time
	computed    float64        // prompt tokens, see turnover
	cache       *kvcache.Cache // what it holds; nil = the pool keeps no model
	signals     Signals        // what the engine last reported
	places      places         // sequences of its engine
	prefill     prefillQueue

	weight    int // relative share; 0 = draining
	limit     int // most requests in flight; 0 = none
	down      bool
	unhealthy bool // by the agent's own checks
	draining  bool
	listed    bool          // named in the configuration, not found at the proxy
	seen      bool          // it has been seen to work since
	since     time.Duration // when it was last seen to come up

	name    string
	address string
	rank    string // of its engine, in the words of a header; "" = the engine has none
	role    Role
	zone    string
	node    string

	fromPeers int           // of its reservations, those that other agents made
	peersAt   time.Duration // when one last reported on the replica; 0 = never
	waiting   int           // of its reservations, before their first byte
	remote    int           // of these, those whose prompts are computed elsewhere
	moving    int           // prompt tokens computed here, or to be, that decode replicas wait for
	movedAt   time.Duration // when the last of these had arrived
	tokens    int           // prompt and expected output tokens of the reservations

	digest   digest // scratch
	near     int    // 2 = on the agent's own node, 1 = in its zone, 0 = elsewhere
	adapters adapters
	taken    perSecond // requests given to it
	ttft     latency   // of those it served

	contextTokens int       // of its models, the longest; 0 = not reported
	blockTokens   int       // in a block of its cache; 0 = not reported
	blocksSeen    bool      // blockTokens is from its KV-cache events, not its metrics
	atSignals     localLoad // what was counted here when it reported them
	trusted       struct {  // the last result of trust
		age    time.Duration
		weight float64
	}
	lists         []string // adapters among its models, sorted; nil = not reported
	slotsReported int      // adapters that fit; 0 = not reported
	firstTokens   firstTokens
	promptWindow  promptWindow // of its prompts, to learn the bytes per token
	reported      reportedTokens

	atProxy     int       // requests that the proxy has for it, if it counts them
	atQueue     int       // of these, in its queue
	proxyCounts bool      // it does
	proxyOrigin uint64    // the process of the proxy that counts them; 0 = unknown
	ofProxy     int       // reservations of that process
	shortfall   shortfall // of requests that it holds, against those reserved

	concurrency concurrency // the learned limit of its requests

	health

	chosen uint64 // decisions
	served uint64 // outcomes it served
	failed uint64 // outcomes it failed
	passed uint64 // decisions in a row that the proxy gave to another one without trying it
}

// ReplicaConfig describes a replica that the configuration lists.
type ReplicaConfig struct {
	Name, Address string
	Zone, Node    string
	Weight        int // 0 = 1
	Limit         int // 0 = the pool's
	CacheTokens   int // 0 = the pool's
	Role          Role
	// Rank is which of the copies of the model inside its engine it is, from 1 on; 0 =
	// the engine has one. Ranks of an engine share its address.
	Rank int
}

// Name is the replica's name: HAProxy's server, or nginx's upstream server.
func (r *Replica) Name() string { return r.name }

// Slot is a small number, 0 or more, that no other member of the pool has. It stays the
// same as long as the replica is a member, and is reused afterwards: policies index
// their tables of replicas by it.
func (r *Replica) Slot() int { return r.slot }

// InFlight is the number of requests reserved on the replica.
func (r *Replica) InFlight() int { return r.inFlight }

// Waiting is the number of those whose first byte has not come.
func (r *Replica) Waiting() int { return r.waiting }

// Tokens is the number of prompt tokens of the requests reserved on the replica,
// and of output tokens where a request sets a limit.
func (r *Replica) Tokens() int { return r.tokens }

// InputTokens is the number of prompt tokens among Tokens.
func (r *Replica) InputTokens() int { return r.input }

// Near is how near the replica is to the agent: 2 on its node, 1 in its zone,
// 0 elsewhere or unknown.
func (r *Replica) Near() int { return r.near }

// mostSeen bounds the inferred size of a cache, in multiples of the configured size: the
// lengths of the requests in it are claims of clients.
const mostSeen = 4

// CacheTokens is the size of the replica's KV cache in tokens, as the engine reports it.
// Otherwise it is the configured size, or the most tokens seen in it at one time, if that
// is more.
func (r *Replica) CacheTokens() int {
	if r.signals.CacheTokens > 0 {
		return r.cacheTokens
	}
	return max(r.cacheTokens, min(r.cacheSeen, mostSeen*r.cacheTokens))
}

// nearness is how near r is to the agent; see Replica.Near.
func (c *PoolConfig) nearness(r *Replica) int {
	switch {
	case c.Node != "" && r.node == c.Node:
		return 2
	case c.Zone != "" && r.zone == c.Zone:
		return 1
	}
	return 0
}

// Signals is what the replica's engine last reported; check Known and At.
func (r *Replica) Signals() Signals { return r.signals }

// Role is the part of a request that it does.
func (r *Replica) Role() Role { return r.role }

// Zone is where the replica runs, as configured; "" is unknown.
func (r *Replica) Zone() string { return r.zone }

// Node is the machine it runs on, as configured; "" is unknown.
func (r *Replica) Node() string { return r.node }

// Weight is the replica's relative share, at least 1 for a candidate.
func (r *Replica) Weight() int { return r.weight }

// Load is the number of requests in flight plus one, divided by the weight.
func (r *Replica) Load() float64 { return float64(r.inFlight+1) / float64(max(r.weight, 1)) }

// open reports whether the replica takes requests at all.
func (r *Replica) open() bool { return !r.down && !r.unhealthy && !r.draining && r.weight > 0 }

// state names what keeps the replica from being chosen, or "up".
func (r *Replica) state(now time.Duration) string {
	switch {
	case r.down, r.unhealthy:
		return "down"
	case r.draining || r.weight == 0:
		return "draining"
	case r.limit > 0 && r.inFlight >= r.limit:
		return "full"
	case now < r.ejectedUntil():
		return "ejected"
	}
	return "up"
}
