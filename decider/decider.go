// Package decider chooses a replica for each request and keeps account of
// what it chose: pools and the models they serve, the replicas' state,
// reservations and their outcomes, and the policies that order replicas.
//
// The package is pure. It does no I/O and starts no goroutine; clock and
// chance are injected, so that serve and simulate run the very same code.
// All methods of Decider and Pool are safe for concurrent use.
package decider

import (
	"math/rand/v2"
	"pointsman/keyed"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/decider/budget"
)

// Clock returns the time since an epoch of its owner's choice. It never goes
// back.
type Clock func() time.Duration

// Decider decides for all pools. Its list of pools is immutable and replaced
// as a whole by Apply; what changes with each request lives in the pools, each
// behind its own lock.
type Decider struct {
	// AdaptersChanged, unless nil, is called after the adapters that engines
	// list have changed. It is set before the first call of Adapters.
	AdaptersChanged func()

	// Secret keys the hashes of prompts, so that clients cannot construct prompts that
	// seem equal. Agents that compare prompts with each other need the same secret. It
	// is set before the first Apply.
	Secret []byte

	// Sharing says how other agents learn of the reservations. It is set before the
	// first Apply.
	Sharing Sharing

	// Budgets, unless nil, counts the tokens of clients. It is set before the first
	// Apply.
	Budgets *budget.Ledger

	clock Clock
	seed  func() uint64
	pools atomic.Pointer[[]*Pool]

	recording recording
	hashing   func() *keyed.Key // of Secret, made once
}

// Config says which pools there are.
type Config struct {
	Pools []PoolConfig
}

// New returns a Decider without pools. seed returns the seeds of the pools'
// random sources and must be safe for concurrent use.
func New(clock Clock, seed func() uint64) *Decider {
	d := &Decider{clock: clock, seed: seed}
	d.hashing = sync.OnceValue(func() *keyed.Key { return keyed.New(d.Secret) })
	d.pools.Store(new([]*Pool))
	return d
}

// Hashing is the keyed hash of prompts. Secret must be set.
func (d *Decider) Hashing() *keyed.Key { return d.hashing() }

// Now is the time by the decider's clock.
func (d *Decider) Now() time.Duration { return d.clock() }

// Apply makes c the configuration. A pool or replica that keeps its name
// keeps its reservations, counters and learned state. Calls to Apply and
// Replace must not overlap.
func (d *Decider) Apply(c Config) { d.Replace(c)() }

// Replace is Apply for a caller with its own routes to the pools. Pools that c lacks stay
// open until the caller has removed its routes to them and calls retire.
func (d *Decider) Replace(c Config) (retire func()) {
	old := d.Pools()
	pools := make([]*Pool, 0, len(c.Pools))
	byName := map[string]*Pool{}
	for _, pc := range c.Pools {
		p := d.Pool(pc.Name)
		if p == nil {
			p = newPool(pc.Name, d, rand.New(rand.NewPCG(d.seed(), d.seed())))
		}
		p.configure(pc)
		byName[pc.Name] = p
		pools = append(pools, p)
	}
	for _, p := range pools {
		p.admission.setSpills(byName)
	}
	d.pools.Store(&pools)
	return func() {
		for _, p := range old {
			if byName[p.name] != p {
				p.close()
			}
		}
	}
}

// Pools returns the pools in the order of the configuration.
func (d *Decider) Pools() []*Pool { return *d.pools.Load() }

// Locked reports whether a pool is locked now, so that a report may have to wait.
func (d *Decider) Locked() bool {
	for _, p := range d.Pools() {
		if !p.mu.TryLock() {
			return true
		}
		p.mu.Unlock()
	}
	return false
}

// Pool returns the pool of that name, or nil.
func (d *Decider) Pool(name string) *Pool {
	for _, p := range d.Pools() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// PoolNamed is Pool for a name on the wire; it does not allocate.
func (d *Decider) PoolNamed(name []byte) *Pool {
	for _, p := range d.Pools() {
		if p.name == string(name) {
			return p
		}
	}
	return nil
}

// Finished reports the end of a request whose pool the proxy does not know: it
// ended before it reached one.
func (d *Decider) Finished(o Outcome) {
	for _, p := range d.Pools() {
		if p.finishedHere(o, true) {
			return
		}
	}
}

// FinishedIfReserved reports the end of a request once more, in case the first
// report was lost. It returns whether there was a reservation to end.
func (d *Decider) FinishedIfReserved(o Outcome) bool {
	for _, p := range d.Pools() {
		if p.finishedHere(o, false) {
			return true
		}
	}
	return false
}

// Sweep ends the reservations whose lease has passed. The owner calls it
// every second or so.
func (d *Decider) Sweep() {
	for _, p := range d.Pools() {
		p.sweep()
	}
}
