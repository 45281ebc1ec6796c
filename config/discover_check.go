package config

import (
	"strings"
	"time"
)

// discover checks where the replicas of a pool come from.
func (v *validator) discover(path string, p *Pool) {
	d := p.Discover
	switch {
	case d.DNS == "" && d.File == "" && d.PrefillDNS == "":
		if _, ok := v.at[path+".discover"]; ok && !v.bad[path+".discover"] {
			v.refuse(path+".discover", "want dns: name:port or file: /path")
		}
		return
	case d.DNS != "" && d.File != "":
		v.refuse(path+".discover", "want dns or file, not both")
	case len(p.Replicas) > 0:
		v.refuse(path+".discover", "the pool has a list of replicas too; want one or the other")
	}
	if d.DNS != "" {
		if host, err := parseHostPort(d.DNS); err != nil || host == "" {
			v.refuse(path+".discover.dns", "%s; want name:port, such as vllm.internal:8000", quote(d.DNS))
		}
	}
	if d.PrefillDNS != "" {
		host, err := parseHostPort(d.PrefillDNS)
		switch {
		case err != nil || host == "":
			v.refuse(path+".discover.prefill_dns", "%s; want name:port, such as vllm-prefill.internal:8000", quote(d.PrefillDNS))
		case d.DNS == "":
			v.refuse(path+".discover.prefill_dns", "want dns too, for the replicas that generate; targets of a file have a label role instead")
		case d.PrefillDNS == d.DNS:
			v.refuse(path+".discover.prefill_dns", "is the name of the replicas that generate")
		}
	}
	if d.File != "" && (!strings.HasPrefix(d.File, "/") || strings.ContainsFunc(d.File, func(r rune) bool { return r < ' ' || r == 0x7f })) {
		v.refuse(path+".discover.file", "%s; want an absolute path", quote(d.File))
	}
	within(v, path+".discover.poll", d.Poll, 100*time.Millisecond, time.Hour)
}

// health checks how the agent asks for the replicas' health.
func (v *validator) health(path string, h Health) {
	if h.Poll != 0 {
		within(v, path+".health.poll", h.Poll, 100*time.Millisecond, time.Hour)
	}
	if !strings.HasPrefix(h.Path, "/") || len(h.Path) > 256 || strings.ContainsFunc(h.Path, breaksWord) {
		v.refuse(path+".health.path", "%s; want a path such as /health", quote(h.Path))
	}
}
