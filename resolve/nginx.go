package resolve

import (
	"context"
	"errors"
	"fmt"

	"pointsman/discover"
	"pointsman/templates"
)

// NginxDir is where the rendered files for nginx are installed by default.
const NginxDir = "/etc/pointsman"

// Nginx is what the templates for nginx need. It reads the files of pools that
// have their replicas from one.
func (r *Config) Nginx() (o templates.Nginx, err error) {
	c := r.File
	if c.Listen.Nginx == "" {
		return o, errors.New("listen.nginx is off: want an address, such as nginx: unix:///run/pointsman/nginx.sock under listen")
	}
	if c.Listen.Feed == "" {
		return o, errors.New("listen.feed is off: nginx reports there how requests ended")
	}
	o = templates.Nginx{
		Bind:          c.Nginx.Bind,
		AgentAddress:  c.Listen.Nginx,
		FeedAddress:   c.Listen.Feed,
		Dir:           NginxDir,
		BodyBuffer:    int(c.Nginx.BodyBuffer),
		RetrySent:     c.Nginx.RetrySent,
		DefaultPool:   c.DefaultPool,
		RankHeader:    r.rankHeader(),
		PrefillHeader: c.PrefillHeader, Prefills: r.prefills(),
		Budgets: len(c.Budgets.Limits) > 0,
	}
	if o.ProcessingTimeout, err = r.NginxTimeout(); err != nil {
		return o, err
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		tp := templatePool(p)
		if p.Source() != (discover.Source{}) {
			if tp.Replicas, err = currentReplicas(p); err != nil {
				return o, err
			}
		}
		o.Pools = append(o.Pools, tp)
	}
	return o, nil
}

// currentReplicas is what nginx balances over by itself in a pool with a source:
// the DNS name, which nginx resolves when it starts, or the targets that the
// file has now.
func currentReplicas(p *Pool) ([]templates.Replica, error) {
	if p.Discover.DNS != "" {
		return []templates.Replica{{Name: "dns:1", Address: p.Discover.DNS}}, nil
	}
	found, err := (&discover.Watcher{Source: p.Source()}).Replicas(context.Background())
	var list []templates.Replica
	for i, r := range found {
		if r.Role == discover.RolePrefill {
			continue // the proxy does not balance over it
		}
		list = append(list, templates.Replica{Name: fmt.Sprintf("file:%d", i+1), Address: r.Address, Weight: r.Weight})
	}
	return list, err
}
