package decider

import "time"

// Replica is one engine server of a pool. Its fields belong to the pool's
// lock; the methods are for policies, which run under it.
type Replica struct {
	name    string
	address string
	zone    string
	node    string
	index   int // in the pool's list; -1 once removed

	weight   int // relative share; 0 = draining
	limit    int // most requests in flight; 0 = none
	down     bool
	draining bool
	listed   bool          // named in the configuration, not found at the proxy
	since    time.Duration // when it was last seen to come up

	inFlight int // reservations
	waiting  int // of these, before their first byte
	tokens   int // prompt and expected output tokens of the reservations

	failures  int           // consecutive ones
	coolUntil time.Duration // not chosen before, unless nothing else is left

	chosen uint64 // decisions
	served uint64 // outcomes it served
	failed uint64 // outcomes it failed
}

// ReplicaConfig describes a replica that the configuration lists.
type ReplicaConfig struct {
	Name, Address string
	Zone, Node    string
	Weight        int // 0 = 1
	Limit         int // 0 = the pool's
}

// Name is the replica's name: HAProxy's server, or nginx's upstream server.
func (r *Replica) Name() string { return r.name }

// InFlight is the number of requests reserved on the replica.
func (r *Replica) InFlight() int { return r.inFlight }

// Waiting is the number of those whose first byte has not come.
func (r *Replica) Waiting() int { return r.waiting }

// Weight is the replica's relative share, at least 1 for a candidate.
func (r *Replica) Weight() int { return r.weight }

// load is what the replica would hold with one request more, by its weight.
func (r *Replica) load() float64 { return float64(r.inFlight+1) / float64(max(r.weight, 1)) }

// open reports whether the replica takes requests at all.
func (r *Replica) open() bool { return !r.down && !r.draining && r.weight > 0 }

// state names what keeps the replica from being chosen, or "up".
func (r *Replica) state(now time.Duration) string {
	switch {
	case r.down:
		return "down"
	case r.draining || r.weight == 0:
		return "draining"
	case r.limit > 0 && r.inFlight >= r.limit:
		return "full"
	case now < r.coolUntil:
		return "cooling"
	}
	return "up"
}
