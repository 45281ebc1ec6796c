package agent

import (
	"context"
	"slices"
	"strings"
	"sync"

	"pointsman/decider"
	"pointsman/discover"
	"pointsman/haproxy"
	"pointsman/intake"
	"pointsman/resolve"
)

// found is what a pool's source holds now.
type found struct {
	pool     string
	source   discover.Source
	replicas []discover.Replica
}

// sources keep the replicas of the pools that have them from DNS or a file.
type sources struct {
	found chan found // from the watchers, to the goroutine of Agent.Run

	mu    sync.Mutex
	known map[string]found // by pool, under mu
}

func newSources() *sources {
	return &sources{found: make(chan found), known: map[string]found{}}
}

// report hands f to the goroutine of Agent.Run, unless ctx ends.
func (s *sources) report(ctx context.Context, f found) {
	select {
	case s.found <- f:
	case <-ctx.Done():
	}
}

// keep remembers f for its pool.
func (s *sources) keep(f found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[f.pool] = f
}

// retain forgets replicas of pools whose source conf has changed or removed.
func (s *sources) retain(conf *resolve.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool, f := range s.known {
		if p := conf.Pool(pool); p == nil || p.Source() != f.source {
			delete(s.known, pool)
		}
	}
}

// complete returns c, which was made from conf, with the replicas that were found. Pools
// whose source has not answered yet are marked as such.
func (s *sources) complete(conf *resolve.Config, c intake.Config) intake.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		p, source := &c.Pools[i], conf.Pools[i].Source()
		f, ok := s.known[p.Name]
		if !ok || f.source != source {
			p.Unfound = source != (discover.Source{})
			continue
		}
		for _, r := range f.replicas {
			p.Replicas = append(p.Replicas, decider.ReplicaConfig{
				Name: replicaName(r), Address: r.Address, Zone: r.Zone, Node: r.Node, Weight: r.Weight, Role: resolve.Role(r.Role),
			})
		}
	}
	return c
}

// members are the servers that HAProxy's backend of a pool should have, for pools with a
// source. It may be called from any goroutine.
func (s *sources) members(pool string) (list []haproxy.Member, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.known[pool]
	for _, r := range f.replicas {
		if r.Role == discover.RolePrefill {
			continue // sidecars ask it, not the proxy
		}
		list = append(list, haproxy.Member{Name: replicaName(r), Address: r.Address, Weight: r.Weight})
	}
	return list, ok
}

// replicaName is the name of a replica that was found: its address, in letters
// that HAProxy accepts in the name of a server.
func replicaName(r discover.Replica) string {
	return strings.NewReplacer("[", "", "]", "").Replace(r.Address)
}

// discovered makes the replicas that were found those of the pool.
func (a *Agent) discovered(ctx context.Context, f found) {
	p := a.conf.Pool(f.pool)
	if p == nil || f.source != p.Source() {
		return // of an earlier configuration
	}
	a.sources.keep(f)
	if a.runtime != nil {
		// HAProxy first: the decider dispatches requests to a new replica at once.
		a.runtime.Reconcile(ctx, f.pool)
	}
	a.applyReplicas()
	a.Log.Info("replicas found", "pool", f.pool, "replicas", len(f.replicas))
}
