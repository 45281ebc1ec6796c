package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// admission checks a pool's.
func (v *validator) admission(p *Pool) {
	a := &p.Admission
	if !a.On {
		return
	}
	path := in("pools", p.Name) + ".admission"
	if a.Wait != "" {
		v.oneOf(path+".wait", a.Wait, Waits)
	}
	if a.Matching != "" {
		v.oneOf(path+".matching", a.Matching, Matchings)
	}
	if a.Wait == "proxy" && a.Matching == "fifo" {
		v.refuse(path+".matching", "the proxy queues at the server that was chosen; want out_of_order, or wait: agent")
	}
	if a.NoReplica != "" {
		v.oneOf(path+".no_replica", a.NoReplica, NoReplicas)
	}
	if a.NoReplica == "hold" {
		v.holdsWithout(p, path+".no_replica")
	}
	if a.Wait == "proxy" && !p.Limited() {
		v.refuse(path+".wait", "requests wait in the proxy only where replicas have a limit; set max_requests, or wait: agent")
	}
	for key, h := range map[string]string{"band_header": a.BandHeader, "deadline_header": a.DeadlineHeader} {
		if h != "" && !isHeader(h) {
			v.refuse(path+"."+key, "%s is not a header name; want one such as x-session-id", quote(h))
		}
	}
	for i, t := range a.Tenants {
		if !isHeader(t) {
			v.refuse(fmt.Sprintf("%s.tenants[%d]", path, i), "%s is not a header name; want user, api_key, session or a header such as x-session-id", quote(t))
		}
	}
	if len(a.TenantWeights) > 0 && len(a.Tenants) == 0 {
		v.refuse(path+".tenant_weights", "nothing identifies tenants; set tenants")
	}
	for _, t := range slices.Sorted(maps.Keys(a.TenantWeights)) {
		within(v, in(path+".tenant_weights", t), a.TenantWeights[t], 1, 1000)
	}
	if len(a.TenantWeights) > 100 {
		v.refuse(path+".tenant_weights", "want at most 100, not %s: each is a label in the metrics", strconv.Itoa(len(a.TenantWeights)))
	}
	if len(a.Bands) > 16 {
		v.refuse(path+".bands", "want at most 16, not %d", len(a.Bands))
	}
	weighted := ""
	if a.SeparatePrefixes && len(a.Tenants) == 0 {
		v.refuse(path+".separate_prefixes", "nothing identifies tenants; set tenants beside it")
	}
	for _, b := range a.Ordered() {
		at := in(path+".bands", b.Name)
		v.band(p, b, at)
		if b.Weight > 0 {
			weighted = b.Name
		} else if weighted != "" {
			v.refuse(at, "has no weight, so it is served strictly first; move it before %s, which has one", label(weighted))
		}
	}
}

// band checks one band of a pool's admission.
func (v *validator) band(p *Pool, b *Band, at string) {
	if !nameForm.MatchString(b.Name) {
		v.refuse(at, "not a valid name for a band; %s", nameWant)
	}
	v.oneOf(at+".order", b.Order, Orders)
	within(v, at+".weight", b.Weight, 0, 1000)
	within(v, at+".ttl", b.TTL, 10*time.Millisecond, 10*time.Minute)
	within(v, at+".deadline", b.Deadline, 0, 24*time.Hour)
	within(v, at+".max_requests", b.MaxRequests, 1, 100_000)
	within(v, at+".max_bytes", b.MaxBytes, 0, 1<<40)
	within(v, at+".priority", b.Priority.Value, -1<<31, 1<<31)
	if b.Spill != "" && (v.config.Pools[b.Spill] == nil || b.Spill == p.Name) {
		v.spill(p, b.Spill, at+".spill")
	}
	for i, prefix := range b.Paths {
		if !strings.HasPrefix(prefix, "/") {
			v.refuse(fmt.Sprintf("%s.paths[%d]", at, i), "%s is not the beginning of a path; want one such as /v1/embeddings", quote(prefix))
		}
	}
	if len(b.Tenants) > 0 && len(p.Admission.Tenants) == 0 {
		v.refuse(at+".tenants", "nothing identifies tenants; set tenants beside bands")
	}
}

// spill refuses a pool that requests of p cannot spill to, and names those that
// they can.
func (v *validator) spill(p *Pool, to, path string) {
	var others []string
	for _, o := range v.config.Ordered() {
		if o != p {
			others = append(others, label(o.Name))
		}
	}
	if len(others) == 0 {
		v.refuse(path, "there is no other pool to spill to")
		return
	}
	v.refuse(path, "%s", unknown("pool ", to, others))
}

// oneOf refuses a value that is none of the valid ones.
func (v *validator) oneOf(path, value string, valid []string) {
	if !slices.Contains(valid, value) {
		v.refuse(path, "%s", unknown("", value, valid))
	}
}

// holdsWithout checks a pool that holds requests while no replica is up.
func (v *validator) holdsWithout(p *Pool, path string) {
	h := &v.config.HAProxy
	switch {
	case p.Admission.Wait == "proxy":
		v.refuse(path, "the proxy cannot hold requests until a replica is up; want wait: agent, or answer")
	case h.RuntimeAPI == "" && p.Health.Poll == 0 && p.Discover.DNS == "" && p.Discover.File == "":
		v.refuse(path, "nothing reports whether a replica is up; set haproxy.runtime_api, or health.poll or discover of the pool")
	case h.Poll > longestLook:
		v.refuse(path, "with haproxy.poll %s the state that HAProxy reports is too old to hold requests; want at most %s", show(h.Poll), show(longestLook))
	}
}

// longestLook is the longest haproxy.poll for pools that hold requests while no
// replica is up: what HAProxy said 15 s ago is not believed then.
const longestLook = 5 * time.Second
