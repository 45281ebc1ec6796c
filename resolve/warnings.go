package resolve

import (
	"fmt"
	"time"

	"pointsman/decider"
)

// Warnings are what the configuration allows but probably does not mean: those
// of the file itself, and those that need to know the policies.
func (r *Config) Warnings() (w []error) {
	for _, e := range r.File.Warnings() {
		w = append(w, e)
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		left, of := r.File.Shadow(p.Pool), p.Pool
		if p.Pool.Mode == "" {
			of = nil // the one of all pools
		}
		if left > 0 && len(r.File.Budgets.Limits) > 0 {
			w = append(w, r.File.Refusal(of, "mode", "%.3g%% of the requests are left to the proxy: budgets count them, and refuse none of them", 100*left))
		}
		if left > 0 && left < 1 && p.Admission != nil {
			w = append(w, r.File.Refusal(of, "mode", "only the %.3g%% of the requests that are decided wait and are refused; the others pass the admission, and take capacity at once", 100*(1-left)))
		}
		if user, ok := p.Policy.(decider.TokenUser); ok {
			w = append(w, r.lateTokens(p, user.Tokens().Timeout)...)
		} else {
			w = append(w, r.unusedEvents(p)...)
		}
	}
	return w
}

// unusedEvents warns of KV events in a pool whose policy does not use them.
func (r *Config) unusedEvents(p *Pool) (w []error) {
	const unused = "policy %s does not use KV events: the agent does not follow them"
	name := p.Pool.Policy.Name
	if p.KVEvents.Port > 0 || p.KVEvents.Bind != "" {
		w = append(w, r.File.Refusal(p.Pool, "kv_events", unused, name))
	}
	for _, replica := range p.Ordered() {
		if replica.KVEvents.Port > 0 {
			w = append(w, r.File.Refusal(p.Pool, fmt.Sprintf("replicas[%s].kv_events", replica.Name), unused, name))
		}
	}
	return w
}

// lateTokens warns of tokens that may arrive after the proxy has gone on.
func (r *Config) lateTokens(p *Pool, tokens time.Duration) (w []error) {
	for _, proxy := range []struct {
		listen, key string
		timeout     func() (time.Duration, error)
	}{
		{r.File.Listen.SPOE, "haproxy.processing_timeout", r.HAProxyTimeout},
		{r.File.Listen.Nginx, "nginx.processing_timeout", r.NginxTimeout},
	} {
		waits, err := proxy.timeout()
		if proxy.listen != "" && err == nil && tokens >= waits {
			w = append(w, p.Pool.Policy.Refuse("timeout", "a request waits up to %v for its tokens, but the proxy waits only %v for the decision (%s)", tokens, waits, proxy.key))
		}
	}
	return w
}
