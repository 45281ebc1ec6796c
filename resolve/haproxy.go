package resolve

import (
	"errors"

	"pointsman/discover"
	"pointsman/templates"
)

// SPOEConf is where the rendered SPOE configuration is installed by default.
const SPOEConf = "/etc/pointsman/" + templates.SPOEFile

// HAProxy is what the templates for HAProxy need.
func (r *Config) HAProxy() (o templates.HAProxy, err error) {
	c := r.File
	if c.Listen.SPOE == "" || c.Listen.Feed == "" {
		return o, errors.New("listen.spoe or listen.feed is off: HAProxy needs both; without these keys they have their defaults")
	}
	o = templates.HAProxy{
		Bind:          c.HAProxy.Bind,
		AgentAddress:  c.Listen.SPOE,
		FeedAddress:   c.Listen.Feed,
		SPOEConf:      SPOEConf,
		RuntimeAPI:    c.HAProxy.RuntimeAPI,
		Bufsize:       int(c.HAProxy.Bufsize),
		LargeBufsize:  int(c.HAProxy.LargeBufsize),
		RetrySent:     c.HAProxy.RetrySent,
		DefaultPool:   c.DefaultPool,
		RankHeader:    r.rankHeader(),
		PrefillHeader: c.PrefillHeader, Prefills: r.prefills(),
		Budgets: len(c.Budgets.Limits) > 0, ListModels: c.ListModels,
	}
	if o.Version, err = r.version(); err != nil {
		return o, err
	}
	if o.ProcessingTimeout, err = r.HAProxyTimeout(); err != nil {
		return o, err
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		tp := templatePool(p)
		tp.Discovered = p.Source() != (discover.Source{}) && o.RuntimeAPI != ""
		if a := p.Admission; a != nil {
			o.Waiting += a.MostWaiting()
			if !holds(a) {
				queueInProxy(&tp, p)
			}
		}
		o.Pools = append(o.Pools, tp)
	}
	return o, nil
}

// queueInProxy makes HAProxy's servers queue what exceeds their limits.
func queueInProxy(tp *templates.Pool, p *Pool) {
	tp.QueueTimeout = p.Admission.LongestWait()
	for i, r := range p.Serving() {
		tp.Replicas[i].MaxConn = r.MaxRequests
		if r.MaxRequests == 0 {
			tp.Replicas[i].MaxConn = p.MaxRequests
		}
	}
}

// templatePool is a pool as the templates of both proxies have it.
func templatePool(p *Pool) templates.Pool {
	tp := templates.Pool{
		Name: p.Name, Models: append(append([]string{}, p.Models...), p.LoRA...),
		AdmissionHeaders: p.Admission != nil && p.Admission.ResponseHeaders,
	}
	for _, r := range p.Serving() { // none that a proxy must not balance over
		tp.Replicas = append(tp.Replicas, templates.Replica{Name: r.Name, Address: r.Address, Weight: r.Weight})
	}
	return tp
}

// Datagrams is the path of the socket for datagrams beside a feed at path.
func Datagrams(path string) string { return templates.Datagrams(path) }
