package main

import (
	"context"
	"fmt"
	"strings"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/discover"
	"pointsman/haproxy"
	"pointsman/nginx"
)

// watch is what looks after the pools: for replicas that come and go, and for
// their health. Each watcher is known by what it was started with, so that one
// whose configuration stays is left alone.
type watch map[string]func() // stops it, and waits

// found is what a pool's source holds now.
type found struct {
	pool     string
	source   discover.Source
	replicas []discover.Replica
}

// sourceOf is where the pool's replicas come from, if not from a list.
func sourceOf(p *config.Pool) discover.Source {
	return discover.Source{DNS: p.Discover.DNS, File: p.Discover.File}
}

// look makes the watchers those that conf wants.
func (a *agent) look(conf *config.Config) {
	wanted := map[string]func(context.Context){}
	for _, p := range conf.Ordered() {
		if source := sourceOf(p); source != (discover.Source{}) {
			wanted[fmt.Sprintf("discover %s %+v", p.Name, p.Discover)] = func(ctx context.Context) {
				w := &discover.Watcher{Source: source, Poll: p.Discover.Poll, Log: a.log, Found: func(r []discover.Replica) {
					select {
					case a.found <- found{p.Name, source, r}:
					case <-ctx.Done():
					}
				}}
				w.Run(ctx)
			}
		}
		if p.Health.Poll > 0 {
			wanted[fmt.Sprintf("health %s %+v", p.Name, p.Health)] = func(ctx context.Context) {
				h := &nginx.Health{Pool: p.Name, Path: p.Health.Path, Poll: p.Health.Poll, Decider: a.decider, Log: a.log}
				h.Run(ctx)
			}
		}
	}
	for key, stop := range a.watch {
		if wanted[key] == nil {
			stop()
			delete(a.watch, key)
		}
	}
	for key, run := range wanted {
		if a.watch[key] == nil {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { run(ctx); close(done) }()
			a.watch[key] = func() { cancel(); <-done }
		}
	}
}

// take makes what was found a pool's replicas. It is called by the goroutine
// that reloads.
func (a *agent) take(ctx context.Context, f found) {
	p := a.conf.Pools[f.pool]
	if p == nil || f.source != sourceOf(p) {
		return // of a configuration that is gone
	}
	a.knownMu.Lock()
	a.known[f.pool] = f
	a.knownMu.Unlock()
	if a.runtime != nil {
		// What is held for a replica goes there as soon as the decider has it.
		a.runtime.Tell(ctx, f.pool)
	}
	dc, err := a.deciderConfig(a.conf)
	if err != nil {
		a.log.Error("replicas found, but not taken in", "pool", f.pool, "error", err)
		return
	}
	a.decider.Apply(dc)
	if a.nginx != nil {
		a.nginx.servers.Refresh()
	}
	a.log.Info("replicas found", "pool", f.pool, "replicas", len(f.replicas))
}

// deciderConfig is the decider's configuration with the replicas that were
// found.
func (a *agent) deciderConfig(c *config.Config) (decider.Config, error) {
	dc, err := deciderConfig(c, a.epoch)
	for i := range dc.Pools {
		p := &dc.Pools[i]
		source := sourceOf(c.Pools[p.Name])
		f, ok := a.known[p.Name]
		if !ok || f.source != source {
			p.Unfound = source != (discover.Source{})
			continue
		}
		for _, r := range f.replicas {
			p.Replicas = append(p.Replicas, decider.ReplicaConfig{
				Name: nameOf(r), Address: r.Address, Zone: r.Zone, Node: r.Node, Weight: r.Weight,
			})
		}
	}
	return dc, err
}

// forgetSources drops what was found for pools that conf has from elsewhere.
func (a *agent) forgetSources(conf *config.Config) {
	a.knownMu.Lock()
	defer a.knownMu.Unlock()
	for pool, f := range a.known {
		if p := conf.Pools[pool]; p == nil || sourceOf(p) != f.source {
			delete(a.known, pool)
		}
	}
}

// nameOf is the name of a replica that was found: its address, in the letters
// that HAProxy takes in the name of a server.
func nameOf(r discover.Replica) string {
	return strings.NewReplacer("[", "", "]", "").Replace(r.Address)
}

// members are the servers that HAProxy's backend of a pool shall have, where the
// agent finds the pool's replicas.
func (a *agent) members(pool string) (list []haproxy.Member, ok bool) {
	a.knownMu.Lock()
	defer a.knownMu.Unlock()
	f, ok := a.known[pool]
	for _, r := range f.replicas {
		list = append(list, haproxy.Member{Name: nameOf(r), Address: r.Address, Weight: r.Weight})
	}
	return list, ok
}
