package agent

import (
	"context"
	"log/slog"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/link"
	"pointsman/nginx"
	"pointsman/resolve"
)

// nginxSide serves nginx, beside HAProxy or in its place. Both use one decider,
// and so share one view of the replicas.
type nginxSide struct {
	servers *nginx.Servers
	agent   *nginx.Agent
	feed    *nginx.Feed
	link    *link.Link
}

func newNginxSide(a *Agent, set *metrics.Set) *nginxSide {
	s := nginx.NewServers(a.decider)
	_, address := split(a.conf.File.Listen.Nginx)
	k := &link.Link{Proxy: "nginx"}
	n := &nginxSide{
		link:    k,
		servers: s,
		agent:   nginx.NewAgent(a.intake, s, k, nginxOptions(a.conf), set, a.Log),
		feed:    nginx.NewFeed(a.decider, s, k, address, set, a.Log),
	}
	n.feed.Other = a.feed.HandleDatagram // HAProxy's datagrams come to the same port
	return n
}

func nginxOptions(c *resolve.Config) nginx.Options {
	limited := len(c.File.Budgets.Limits) > 0
	showAdmission, refuses := map[string]bool{}, limited
	for _, p := range c.Pools {
		refuses = refuses || p.Admission != nil
		if p.Admission != nil && p.Admission.ResponseHeaders {
			showAdmission[p.Name] = true
		}
	}
	return nginx.Options{
		Head: int(c.File.Scan.Limit), RetrySent: c.File.Nginx.RetrySent, MostHeld: c.MaxHeld(),
		RefuseUnreadable: refuses, ResponseHeaders: showAdmission, Budgets: limited,
	}
}

// stop answers the requests under way, then ends the feed.
func (n *nginxSide) stop(ctx context.Context, log *slog.Logger) {
	if err := n.agent.Shutdown(ctx); err != nil {
		log.Warn("decisions under way were cut off", "proxy", "nginx", "error", err)
	}
	n.feed.Close()
}
