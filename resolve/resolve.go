// Package resolve works out what a configuration means, once for each load: the
// policies with their options, the admission of each pool, the timeouts of the
// proxies, and from these what the decider and the templates need.
package resolve

import (
	"os"
	"sync"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/discover"
	"pointsman/templates"
)

// Config is a checked configuration and everything that follows from it. It is
// not changed after it is made, so it may be read from several goroutines.
type Config struct {
	File  *config.Config
	Pools []Pool // in the order of the file

	policies policy.Table
	version  func() (templates.Version, error) // of HAProxy, looked up on the first call
	hold     time.Duration                     // the longest that the agent holds a request
	held     int                               // the most requests that it holds
}

// Pool is a pool of the file with its policy and its admission.
type Pool struct {
	*config.Pool
	Policy    decider.Policy
	Prefill   decider.Policy    // another instance, for the replicas that only compute prompts; nil = there are none
	PolicyKey string            // equal for policies of equal options
	Admission *config.Admission // as it takes effect, nil for none
}

// Options say what a configuration is resolved with.
type Options struct {
	Policies policy.Table
	// HAProxyVersion overrides haproxy.version of the file.
	HAProxyVersion string
	// Installed returns the output of haproxy -v; nil runs the binary in the
	// path. It is called at most once for each Config, and only where the version
	// matters and neither the file nor HAProxyVersion gives it.
	Installed func() (string, error)
}

// Checks are the checks of a configuration that need the policies.
func (o *Options) Checks() config.Checks {
	return config.Checks{
		Policies: o.Policies.Names(),
		Policy:   func(p *config.Policy) error { return o.Policies.Check(p.Name, p) },
	}
}

// Load reads, checks and resolves the file at path.
func Load(path string, o Options) (*Config, error) {
	if err := config.CheckEnvironment(os.Environ()); err != nil {
		return nil, err
	}
	c, err := config.Load(path, os.Getenv, o.Checks())
	if err != nil {
		return nil, err
	}
	return Resolve(c, o)
}

// Resolve works out what follows from c, which has passed the checks of o.
func Resolve(c *config.Config, o Options) (*Config, error) {
	written := c.HAProxy.Version
	if o.HAProxyVersion != "" {
		written = o.HAProxyVersion
		if err := checkVersion(written); err != nil {
			return nil, err
		}
	}
	installed := o.Installed
	if installed == nil {
		installed = runHAProxy
	}
	r := &Config{
		File: c, policies: o.Policies,
		version: sync.OnceValues(func() (templates.Version, error) { return version(written, installed) }),
	}
	for _, p := range c.Ordered() {
		policy, key, err := o.Policies.New(p.Policy.Name, &p.Policy)
		if err != nil {
			return nil, err
		}
		a, err := r.admission(p, o.Policies.Late(p.Policy.Name))
		if err != nil {
			return nil, err
		}
		if holds(a) {
			r.hold = max(r.hold, a.LongestWait())
			r.held += a.MostWaiting()
		}
		rp := Pool{Pool: p, Policy: policy, PolicyKey: key, Admission: a}
		if p.Prefills() {
			if rp.Prefill, _, err = o.Policies.New(p.Policy.Name, &p.Policy); err != nil {
				return nil, err
			}
		}
		r.Pools = append(r.Pools, rp)
	}
	return r, nil
}

// Pool returns the pool of that name, or nil.
func (r *Config) Pool(name string) *Pool {
	for i := range r.Pools {
		if r.Pools[i].Name == name {
			return &r.Pools[i]
		}
	}
	return nil
}

// MaxHeld is the most requests that the agent holds at the same time.
func (r *Config) MaxHeld() int { return r.held }

// Source is where the replicas come from, if not from a list or from HAProxy;
// otherwise it is empty.
func (p *Pool) Source() discover.Source {
	return discover.Source{DNS: p.Discover.DNS, File: p.Discover.File, Prefill: p.Discover.PrefillDNS, Roles: p.Sidecar != "" && p.Discover.File != ""}
}
