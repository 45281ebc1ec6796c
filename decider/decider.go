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
	"sync"
	"sync/atomic"
	"time"

	"pointsman/session"
)

// Clock returns the time since an epoch of its owner's choice. It never goes
// back.
type Clock func() time.Duration

// Decider decides for all pools. Its table of pools and models is immutable and
// replaced as a whole by Apply; what changes with each request lives in the
// pools, each behind its own lock.
type Decider struct {
	clock Clock
	seed  func() uint64
	table atomic.Pointer[table]

	listing sync.Mutex // one relist at a time
	listed  atomic.Pointer[listed]

	stats stats
}

// Config says which pools there are and which models they serve.
type Config struct {
	Pools       []PoolConfig
	Routes      map[string][]Split // model → weighted pools; wins over PoolConfig.Models
	DefaultPool string             // takes unknown and unseen models; "" = none
	Session     session.Headers
	ModelHeader session.Headers // names the model of a body too long to show it
	ScanLimit   int             // bytes of a body that are looked at; 0 = prompt.DefaultLimit
}

// Split is one branch of a weighted route.
type Split struct {
	Pool   string
	Weight int
}

// New returns a Decider without pools. seed returns the seeds of the pools'
// random sources and must be safe for concurrent use.
func New(clock Clock, seed func() uint64) *Decider {
	d := &Decider{clock: clock, seed: seed}
	d.table.Store(&table{})
	d.listed.Store(&listed{})
	return d
}

// Apply makes c the configuration. A pool or replica that keeps its name
// keeps its reservations, counters and learned state. Calls to Apply must not
// overlap.
func (d *Decider) Apply(c Config) {
	old := d.table.Load()
	t := &table{
		models:      map[string]*route{},
		session:     c.Session,
		modelHeader: c.ModelHeader,
		scanLimit:   c.ScanLimit,
	}
	byName := map[string]*Pool{}
	for _, pc := range c.Pools {
		p := old.pool(pc.Name)
		if p == nil {
			p = newPool(pc.Name, d.clock, rand.New(rand.NewPCG(d.seed(), d.seed())))
		}
		p.configure(pc)
		byName[pc.Name] = p
		t.pools = append(t.pools, p)
		for _, m := range pc.Models {
			t.models[m] = &route{name: m, splits: []branch{{p, 1}}, total: 1}
		}
		for _, m := range pc.LoRA {
			t.models[m] = &route{name: m, lora: m, splits: []branch{{p, 1}}, total: 1}
		}
	}
	for model, splits := range c.Routes {
		r := &route{name: model}
		for _, s := range splits {
			if p := byName[s.Pool]; p != nil && s.Weight > 0 {
				r.splits = append(r.splits, branch{p, uint64(s.Weight)})
				r.total += uint64(s.Weight)
			}
		}
		if r.total > 0 {
			t.models[model] = r
		}
	}
	for _, p := range t.pools {
		p.setSpills(byName)
	}
	t.fallback = byName[c.DefaultPool]
	d.table.Store(t)
	for _, p := range old.pools {
		if byName[p.name] != p {
			p.close()
		}
	}
	d.relist()
}

// Pools returns the pools in the order of the configuration.
func (d *Decider) Pools() []*Pool { return d.table.Load().pools }

// Pool returns the pool of that name, or nil.
func (d *Decider) Pool(name string) *Pool { return d.table.Load().pool(name) }

// PoolNamed is Pool for a name on the wire; it does not allocate.
func (d *Decider) PoolNamed(name []byte) *Pool { return d.table.Load().poolNamed(name) }

// Finished reports the end of a request whose pool the proxy does not know: it
// ended before it reached one.
func (d *Decider) Finished(o Outcome) {
	for _, p := range d.Pools() {
		if p.finishedOrGone(o) {
			return
		}
	}
}

// FinishedIfReserved reports the end of a request once more, in case the first
// report was lost. It returns whether there was a reservation to end.
func (d *Decider) FinishedIfReserved(o Outcome) bool {
	for _, p := range d.Pools() {
		if p.finishedIfReserved(o) {
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
