package config

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// metricsForm is where metrics may be.
var metricsForm = regexp.MustCompile(`^(off|(:\d{1,5})?/[!-~]{0,200})$`)

func (v *validator) pool(p *Pool) {
	path := in("pools", p.Name)
	if !nameForm.MatchString(p.Name) {
		v.refuse(path, "not a valid name for a pool and its HAProxy backend; %s", nameWant)
	} else if strings.HasPrefix(p.Name, "pointsman-") {
		v.refuse(path, "names that begin with pointsman- are reserved for the rendered configuration")
	}
	if p.Engine != "" && !slices.Contains(Engines, p.Engine) {
		v.refuse(path+".engine", "%s", unknown("", p.Engine, Engines))
	}
	if p.Metrics != "" && !metricsForm.MatchString(p.Metrics) {
		v.refuse(path+".metrics", "%s; want a path such as /metrics, a port and a path such as :8002/metrics, or off", quote(p.Metrics))
	}
	v.events(path+".kv_events", &p.KVEvents)
	v.ranks(path, p)
	v.roles(path, p)
	within(v, path+".max_requests", p.MaxRequests, 0, 1_000_000)
	within(v, path+".cache_tokens", p.CacheTokens, 0, 100_000_000)
	within(v, path+".cpu_cache_tokens", p.CPUCacheTokens, 0, 1_000_000_000)
	within(v, path+".context_tokens", p.ContextTokens, 0, 100_000_000)
	within(v, path+".retry_after", p.RetryAfter, 0, time.Hour)
	within(v, path+".slow_start", p.SlowStart, 0, 24*time.Hour)
	within(v, path+".spill", p.Spill, 0, 1_000_000)
	within(v, path+".lora_slots", p.LoRASlots, 1, 1024)
	if p.Locality && v.config.Agent.Node == "" && v.config.Agent.Zone == "" {
		v.refuse(path+".locality", "the agent's own location is not known; set agent.node or agent.zone")
	}
	if p.LoRAAffinity && len(p.LoRA) == 0 {
		v.refuse(path+".lora_affinity", "the pool has no adapters; list them under lora")
	}
	if p.StickySessions && len(v.config.Session.Headers) == 0 {
		v.refuse(path+".sticky_sessions", "requests have no session; set session.headers")
	}
	v.discover(path, p)
	v.health(path, p.Health)
	if len(p.Replicas) == 0 && p.Discover.DNS == "" && p.Discover.File == "" && v.config.HAProxy.RuntimeAPI == "" && !v.bad[path+".discover"] && !v.bad[path+".replicas"] {
		v.refuse(path, "no replicas; want a list, discover, or haproxy.runtime_api to take them from the HAProxy backend of the same name")
	}
	first := map[string]string{}
	for _, r := range p.Ordered() {
		at := in(path+".replicas", r.Name)
		v.replica(at, r)
		if other, ok := first[r.Address]; ok && r.Address != "" {
			v.refuse(at+".address", "%s is already the address of replica %s", quote(r.Address), label(other))
		}
		first[r.Address] = r.Name
	}
}

// ranks checks what a pool says of the ranks of its engines.
func (v *validator) ranks(path string, p *Pool) {
	within(v, path+".data_parallel", p.DataParallel, 1, 64)
	if p.DataParallel < 2 {
		return
	}
	switch {
	case len(p.Replicas) == 0:
		v.refuse(path+".data_parallel", "ranks are replicas of their own; want the engines listed under replicas")
	case p.KVEvents.Bind != "":
		v.refuse(path+".data_parallel", "engines that connect to kv_events.bind do not say which rank they are; want kv_events.port")
	case p.KVEvents.Ranks > 1:
		v.refuse(path+".kv_events.ranks", "each rank is a replica by data_parallel; leave it out")
	}
	within(v, path+".kv_events.port", p.KVEvents.Port, 0, 65535-p.DataParallel+1)
	within(v, path+".kv_events.replay", p.KVEvents.Replay, 0, 65535-p.DataParallel+1)
	if a, b := p.KVEvents.Port, p.KVEvents.Replay; a > 0 && b > 0 && a != b && max(a, b)-min(a, b) < p.DataParallel {
		v.refuse(path+".kv_events.replay", "%d overlaps the ports of the ranks' events; want it %d or more away from %d", b, p.DataParallel, a)
	}
	for _, r := range p.Ranked() {
		if p.Replicas[r.Name] != nil {
			v.refuse(in(path+".replicas", r.Name), "a rank of another replica has this name")
		}
	}
}

func (v *validator) events(path string, e *KVEvents) {
	within(v, path+".ranks", e.Ranks, 1, 256)
	ranks := max(e.Ranks, 1)
	within(v, path+".port", e.Port, 0, 65535-ranks+1)
	within(v, path+".replay", e.Replay, 0, 65535-ranks+1)
	if e.Port > 0 && e.Replay > 0 && max(e.Port, e.Replay)-min(e.Port, e.Replay) < ranks {
		v.refuse(path+".replay", "%d overlaps the ports of the events; want it %d or more away from %d", e.Replay, ranks, e.Port)
	}
	if e.Bind == "" {
		return
	}
	host, err := parseHostPort(e.Bind)
	switch {
	case err != nil:
		v.refuse(path+".bind", "%s is not an address to listen on; %v", quote(e.Bind), err)
	case host == "":
		v.refuse(path+".bind", "%s is open to the network; want 127.0.0.1%s, or 0.0.0.0%[2]s if that is meant", quote(e.Bind), e.Bind)
	case e.Port > 0:
		v.refuse(path+".bind", "want bind or port, not both")
	}
}

func (v *validator) replica(path string, r *Replica) {
	if !nameForm.MatchString(r.Name) {
		v.refuse(path, "not a valid name for a replica and its HAProxy server; %s", nameWant)
	}
	host, err := parseHostPort(r.Address)
	switch {
	case r.Address == "" && !v.bad[path+".address"]:
		v.refuse(path, "has no address; want one, such as {address: 10.0.0.1:8000}")
	case err != nil:
		v.refuse(path+".address", "%s; %v", quote(r.Address), err)
	case host == "":
		v.refuse(path+".address", "%s; %v", quote(r.Address), errHostPort)
	}
	within(v, path+".weight", r.Weight, 1, 256)
	v.events(path+".kv_events", &r.KVEvents)
	if r.KVEvents.Bind != "" {
		v.refuse(path+".kv_events.bind", "all replicas of a pool connect to one address; set it in the pool's kv_events")
	}
	within(v, path+".max_requests", r.MaxRequests, 0, 1_000_000)
	within(v, path+".cache_tokens", r.CacheTokens, 0, 100_000_000)
}
