package main

import (
	"context"
	"errors"
	"fmt"

	"pointsman/config"
	"pointsman/discover"
	"pointsman/templates"
)

// defaultNginxDir is where the rendered files are expected to be installed.
const defaultNginxDir = "/etc/pointsman"

// nginx renders the complete set, or what attaches to an nginx that runs.
func (c *renderCmd) nginx(conf *config.Config) error {
	o, err := nginxOptions(conf)
	if err != nil {
		return err
	}
	o.Dir = c.NginxDir
	if !c.Attach {
		files, err := templates.RenderNginx(o)
		if err != nil {
			return err
		}
		return c.deliver(files, nil)
	}
	files, snippets, err := templates.AttachNginx(o)
	if err != nil {
		return err
	}
	return c.deliver(files, snippets)
}

// nginxOptions is what the templates need of the configuration.
func nginxOptions(c *config.Config) (templates.Nginx, error) {
	o := templates.Nginx{
		Bind:              c.Nginx.Bind,
		AgentAddress:      c.Listen.Nginx,
		FeedAddress:       c.Listen.Feed,
		Dir:               defaultNginxDir,
		BodyBuffer:        int(c.Nginx.BodyBuffer),
		ProcessingTimeout: c.Nginx.ProcessingTimeout,
		RetrySent:         c.Nginx.RetrySent,
		DefaultPool:       c.DefaultPool,
	}
	if o.AgentAddress == "" {
		return o, errors.New("listen.nginx is off: want an address, as nginx: unix:///run/pointsman/nginx.sock under listen")
	}
	if o.FeedAddress == "" {
		return o, errors.New("listen.feed is off: nginx tells there how requests ended")
	}
	var err error
	if o.ProcessingTimeout, err = processingTimeout(c, "nginx.processing_timeout", c.Nginx.ProcessingTimeout); err != nil {
		return o, err
	}
	for _, p := range c.Ordered() {
		tp := templatePool(p)
		a, err := admissionOf(c, p)
		if err != nil {
			return o, err
		}
		tp.TellAdmission = a != nil && a.ResponseHeaders
		if sourceOf(p) != (discover.Source{}) {
			var err error
			if tp.Replicas, err = knownNow(p); err != nil {
				return o, err
			}
		}
		o.Pools = append(o.Pools, tp)
	}
	return o, nil
}

// knownNow is what nginx balances over by itself in a pool whose replicas come
// and go: the DNS name, which nginx looks up as it starts, or the file's
// targets of this moment.
func knownNow(p *config.Pool) ([]templates.Replica, error) {
	if p.Discover.DNS != "" {
		return []templates.Replica{{Name: "dns:1", Address: p.Discover.DNS}}, nil
	}
	found, err := (&discover.Watcher{Source: sourceOf(p)}).Look(context.Background())
	var list []templates.Replica
	for i, r := range found {
		list = append(list, templates.Replica{Name: fmt.Sprintf("file:%d", i+1), Address: r.Address, Weight: r.Weight})
	}
	return list, err
}
