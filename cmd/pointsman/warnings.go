package main

import (
	"fmt"
	"time"

	"pointsman/config"
	"pointsman/decider"
)

// warnings tells what is allowed in c and probably not meant: config's own, and
// what takes knowledge of the policies.
func warnings(c *config.Config) (w []error) {
	for _, e := range c.Warnings() {
		w = append(w, e)
	}
	for _, p := range c.Ordered() {
		policy, _, err := newPolicy(&p.Policy)
		if err != nil {
			continue // load has refused it
		}
		user, ok := policy.(decider.TokenUser)
		if !ok {
			const unheard = "policy %s does not go by events: they are not followed"
			if p.KVEvents.Port > 0 || p.KVEvents.Bind != "" {
				w = append(w, c.Refusal(p, "kv_events", unheard, p.Policy.Name))
			}
			for _, r := range p.Ordered() {
				if r.KVEvents.Port > 0 {
					w = append(w, c.Refusal(p, fmt.Sprintf("replicas[%s].kv_events", r.Name), unheard, p.Policy.Name))
				}
			}
			continue
		}
		for _, proxy := range []struct {
			listen, key string
			timeout     time.Duration
		}{
			{c.Listen.SPOE, "haproxy.processing_timeout", c.HAProxy.ProcessingTimeout},
			{c.Listen.Nginx, "nginx.processing_timeout", c.Nginx.ProcessingTimeout},
		} {
			waits, err := processingTimeout(c, proxy.key, proxy.timeout)
			if tokens := user.Tokens().Timeout; proxy.listen != "" && err == nil && tokens >= waits {
				w = append(w, p.Policy.Refuse("timeout", "a request waits up to %v for its tokens, and the proxy only %v for the decision (%s)", tokens, waits, proxy.key))
			}
		}
	}
	return w
}
