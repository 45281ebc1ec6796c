package agent

import (
	"context"
	"fmt"
	"time"

	"pointsman/discover"
	"pointsman/nginx"
)

// prefillCheck is the pause between two checks of prefill replicas, if no checks are
// configured.
const prefillCheck = time.Second

// watchers follow the pools: replicas that come and go, and their health. Each is keyed by
// what it was started with, so that a reload does not restart those whose configuration is
// unchanged. They belong to the goroutine of Agent.Run.
type watchers map[string]func() // stops the watcher, and waits for its end

// set stops the watchers that are not wanted and starts those that are missing.
func (w watchers) set(wanted map[string]func(context.Context)) {
	for key, stop := range w {
		if wanted[key] == nil {
			stop()
			delete(w, key)
		}
	}
	for key, run := range wanted {
		if w[key] == nil {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { run(ctx); close(done) }()
			w[key] = func() { cancel(); <-done }
		}
	}
}

// stop stops all watchers.
func (w watchers) stop() { w.set(nil) }

// watch makes the watchers those that the configuration wants.
func (a *Agent) watch() {
	wanted := map[string]func(context.Context){}
	for i := range a.conf.Pools {
		p := &a.conf.Pools[i]
		if source := p.Source(); source != (discover.Source{}) {
			wanted[fmt.Sprintf("discover %s %+v %v", p.Name, p.Discover, source.Roles)] = func(ctx context.Context) {
				w := &discover.Watcher{Source: source, Poll: p.Discover.Poll, Log: a.Log, Found: func(r []discover.Replica) {
					a.sources.report(ctx, found{p.Name, source, r})
				}}
				w.Run(ctx)
			}
		}
		if p.Health.Poll > 0 {
			h := &nginx.Health{Pool: p.Name, Path: p.Health.Path, Poll: p.Health.Poll, Decider: a.decider, Log: a.Log}
			wanted[fmt.Sprintf("health %s %+v", p.Name, p.Health)] = h.Run
		} else if p.Prefills() {
			h := &nginx.Health{Pool: p.Name, Path: p.Health.Path, Poll: prefillCheck, Prefill: true, Decider: a.decider, Log: a.Log}
			wanted[fmt.Sprintf("prefill %s %s", p.Name, p.Health.Path)] = h.Run
		}
	}
	a.watchers.set(wanted)
}
