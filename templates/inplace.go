package templates

import "strings"

// InPlace is what attaches to an HAProxy whose own backends keep their servers:
// the question goes into each of these backends, so that whatever routes to
// them stays as it is.
type InPlace struct {
	Sections string   // the agent's backend, the ring and what belongs to them
	SPOE     File     // to be installed at HAProxy.SPOEConf
	Logs     []string // log lines for each frontend that leads to the backends
	// Fields are what a log format begins with. Empty from 3.2 on, where the
	// log lines have a profile.
	Fields string
	// HTTPLog is the format that "option httplog" stands for.
	HTTPLog string
	// Keeps says that connections to servers are kept where these allow it.
	Keeps bool

	v *view
}

// AttachInPlace renders for pools that are the user's own backends; replicas do
// not matter. The error lists everything that is wrong with o.
func AttachInPlace(o HAProxy) (*InPlace, error) {
	v, err := o.view(false)
	if err != nil {
		return nil, err
	}
	v.OnePool, v.InPlace = true, true // for each backend by itself
	p := &InPlace{v: v, HTTPLog: httpLog, Keeps: o.RetrySent}
	if p.Sections, err = execute("inplace.cfg.tmpl", v); err != nil {
		return nil, err
	}
	spoe, err := execute("spoe.conf.tmpl", v)
	if err != nil {
		return nil, err
	}
	p.SPOE = File{SPOEFile, spoe}
	logs, err := execute("feed-logs", v)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(logs) {
		p.Logs = append(p.Logs, strings.TrimSpace(line))
	}
	if !v.LogProfiles() {
		p.Fields = feedFormat("close")
	}
	return p, nil
}

// Ask are the lines of a pool's backend that ask the agent, and Follow those
// that follow its answer, both with their comments. kept says that connections to
// its servers are kept: these then need Servers before them.
func (p *InPlace) Ask(pool string, kept bool) (string, error) { return p.lines("ask", pool, kept) }

// Follow are the lines that follow the agent's answer; see Ask.
func (p *InPlace) Follow(pool string, kept bool) (string, error) {
	return p.lines("backend", pool, kept)
}

// Servers are settings that the servers inherit of a backend whose connections are kept.
// several says that it has more than one server, which are checked.
func (p *InPlace) Servers(several bool) (string, error) {
	return execute("servers", struct {
		Version Version
		Several bool
	}{p.v.Version, several})
}

func (p *InPlace) lines(tmpl, pool string, kept bool) (string, error) {
	for _, c := range p.v.Pools {
		if c.Name == pool {
			one := *p.v
			one.Pools, one.RetrySent = []Pool{c}, kept
			return execute(tmpl, one.For(c))
		}
	}
	return "", errNoPool(pool)
}

type errNoPool string

func (e errNoPool) Error() string { return "no pool " + string(e) }
