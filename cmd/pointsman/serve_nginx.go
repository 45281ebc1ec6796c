package main

import (
	"context"
	"log/slog"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/config"
	"pointsman/nginx"
)

// nginxSide is what serves nginx, beside or in place of HAProxy. Both speak to
// one decider, and so share one view of the replicas.
type nginxSide struct {
	servers *nginx.Servers
	agent   *nginx.Agent
	feed    *nginx.Feed
}

func newNginxSide(a *agent, set *metrics.Set) *nginxSide {
	s := nginx.NewServers(a.decider)
	_, address, err := config.ParseAddress(a.conf.Listen.Nginx)
	if err != nil {
		address = "" // refused already
	}
	n := &nginxSide{
		servers: s,
		agent:   nginx.NewAgent(a.decider, s, nginxAgentOptions(a.conf), set, a.log),
		feed:    nginx.NewFeed(a.decider, s, address, set, a.log),
	}
	n.feed.Other = a.feed.Witnessed // HAProxy's datagrams come to the same port
	return n
}

func nginxAgentOptions(c *config.Config) nginx.Options {
	tell := map[string]bool{}
	for _, p := range c.Ordered() {
		if a, err := admissionOf(c, p); err == nil && a != nil && a.ResponseHeaders {
			tell[p.Name] = true
		}
	}
	return nginx.Options{Head: int(c.Scan.Limit), RetrySent: c.Nginx.RetrySent, MostHeld: mostHeld(c), Tell: tell}
}

// reload applies what may change while it runs.
func (n *nginxSide) reload(c *config.Config) {
	n.agent.Set(nginxAgentOptions(c))
	n.servers.Refresh()
}

// stop answers what is asked already, then ends the feed.
func (n *nginxSide) stop(ctx context.Context, log *slog.Logger) {
	if err := n.agent.Shutdown(ctx); err != nil {
		log.Warn("decisions under way were cut off", "proxy", "nginx", "error", err)
	}
	n.feed.Close()
}
