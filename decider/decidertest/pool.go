package decidertest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"pointsman/decider"
)

// Clock is a clock that stands still until a test moves it, while others may read it.
type Clock struct{ now atomic.Int64 }

// Read returns the time. It is a decider.Clock.
func (c *Clock) Read() time.Duration { return time.Duration(c.now.Load()) }

// Advance moves the clock on by d.
func (c *Clock) Advance(d time.Duration) { c.now.Add(int64(d)) }

// Seeds returns a function that gives the seeds 1, 2, 3 …
func Seeds() func() uint64 {
	n := uint64(0)
	return func() uint64 { n++; return n }
}

// Replicas returns n replicas named r0, r1, r2 …
func Replicas(n int) []decider.ReplicaConfig {
	list := make([]decider.ReplicaConfig, n)
	for i := range list {
		list[i] = decider.ReplicaConfig{Name: Name(i), Address: fmt.Sprintf("127.0.0.1:%d", 9000+i)}
	}
	return list
}

// Name is the name of replica i.
func Name(i int) string { return fmt.Sprintf("r%d", i) }

// Pool is a pool under test.
type Pool struct {
	*decider.Pool
	Decider *decider.Decider
	Clock   *Clock
	Config  decider.PoolConfig // as last applied

	ids     *rand.Rand
	adopted map[string][]decider.ID // by replica, see SetInFlight
}

// New returns a pool of n replicas with that policy. Each change alters its configuration
// first.
func New(policy decider.Policy, n int, change ...func(*decider.PoolConfig)) *Pool {
	p := &Pool{
		Clock:   &Clock{},
		Config:  decider.PoolConfig{Name: "llama", Models: []string{"m"}, Policy: policy, PolicyName: "test", Replicas: Replicas(n)},
		ids:     rand.New(rand.NewPCG(1, 2)),
		adopted: map[string][]decider.ID{},
	}
	p.Decider = decider.New(p.Clock.Read, Seeds())
	p.Apply(change...)
	return p
}

// Of returns a pool that was made by other means, so that it can be driven. It
// has no Decider, Clock or Config.
func Of(p *decider.Pool) *Pool {
	return &Pool{Pool: p, ids: rand.New(rand.NewPCG(1, 2)), adopted: map[string][]decider.ID{}}
}

// Apply changes the pool's configuration, as a reload does.
func (p *Pool) Apply(change ...func(*decider.PoolConfig)) {
	for _, f := range change {
		f(&p.Config)
	}
	p.Decider.Apply(decider.Config{Pools: []decider.PoolConfig{p.Config}})
	p.Pool = p.Decider.Pools()[0]
}

// NewID returns the id of a new request.
func (p *Pool) NewID() (id decider.ID) {
	for i := range id {
		id[i] = byte(p.ids.Uint32())
	}
	return id
}

// Drain takes replicas out of the choice, and Undrain brings them back. They keep
// their requests and their caches.
func (p *Pool) Drain(replicas ...string) { p.setDraining(true, replicas) }

// Undrain brings drained replicas back.
func (p *Pool) Undrain(replicas ...string) { p.setDraining(false, replicas) }

func (p *Pool) setDraining(draining bool, replicas []string) {
	for _, name := range replicas {
		for _, r := range p.Config.Replicas {
			if r.Name == name {
				p.Discovered([]decider.ReplicaState{{Name: name, Up: true, Draining: draining, Weight: max(r.Weight, 1)}})
			}
		}
	}
}
