package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validator checks what the types alone do not.
type validator struct {
	config *Config
	*source
	errs Errors
}

// nameForm is what HAProxy takes as the name of a backend or a server.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

const nameWant = "want 1 to 64 letters, digits or any of _ . : -"

var versionForm = regexp.MustCompile(`^(\d{1,2})\.(\d{1,2})(\.\d{1,3})?$`)

// metricsForm is where metrics may be.
var metricsForm = regexp.MustCompile(`^(off|(:\d{1,5})?/[!-~]{0,200})$`)

// refuse notes a refusal at path, unless its value, or one that it lies in, was
// refused already.
func (v *validator) refuse(path, format string, args ...any) {
	for p := path; ; p = above(p) {
		if v.bad[p] {
			return
		}
		if p == "" {
			break
		}
	}
	v.errs = append(v.errs, v.errorAt(path, format, args...))
}

func (v *validator) all(checks Checks) {
	v.listen()
	v.haproxy()
	v.nginx()
	within(v, "scan.limit", v.config.Scan.Limit, 1<<10, 64<<20)
	within(v, "lease", v.config.Lease, time.Second, 24*time.Hour)
	if len(v.config.Pools) == 0 {
		v.refuse("pools", "want at least one pool")
	}
	for _, p := range v.config.Ordered() {
		v.pool(p)
		v.policy(p, checks)
		v.admission(p)
	}
	v.names()
}

// within refuses a value outside [lo, hi].
func within[T cmp.Ordered](v *validator, path string, value, lo, hi T) {
	if value < lo || value > hi {
		v.refuse(path, "want %s to %s, not %s", show(lo), show(hi), show(value))
	}
}

// show writes a duration as one would in the file: 24h, not 24h0m0s.
func show(value any) string {
	s := fmt.Sprint(value)
	if _, ok := value.(time.Duration); ok {
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
	}
	return s
}

func (v *validator) listen() {
	l := &v.config.Listen
	used := map[string]string{}
	for _, k := range []struct {
		path  string
		value *string
	}{{"listen.spoe", &l.SPOE}, {"listen.nginx", &l.Nginx}, {"listen.feed", &l.Feed}, {"listen.admin", &l.Admin}} {
		if *k.value == "off" {
			*k.value = ""
		}
		if *k.value == "" {
			continue
		}
		network, address, err := ParseAddress(*k.value)
		switch {
		case err != nil:
			v.refuse(k.path, "%s is no address to listen on; %v, or off", quote(*k.value), err)
		case address[0] == ':':
			v.refuse(k.path, "%s is open to the network; want 127.0.0.1%s, or 0.0.0.0%[2]s if that is meant", quote(*k.value), address)
		case used[address] != "":
			v.refuse(k.path, "%s is taken by %s", quote(*k.value), used[address])
		}
		if network != "" {
			used[address] = k.path
		}
	}
	if l.Nginx != "" && strings.HasPrefix(l.Feed, "unix:") {
		v.refuse("listen.feed", "nginx sends its lines over UDP; want host:port beside listen.nginx")
	}
}

func (v *validator) nginx() {
	n := &v.config.Nginx
	if _, err := parseHostPort(n.Bind); err != nil {
		v.refuse("nginx.bind", "%s; %v, or :8080", quote(n.Bind), err)
	}
	within(v, "nginx.processing_timeout", n.ProcessingTimeout, time.Millisecond, time.Hour)
	within(v, "nginx.body_buffer", n.BodyBuffer, 16<<10, 64<<20)
}

// discover checks where the replicas of a pool come from.
func (v *validator) discover(path string, p *Pool) {
	d := p.Discover
	switch {
	case d.DNS == "" && d.File == "":
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
			v.refuse(path+".discover.dns", "%s; want name:port, as vllm.internal:8000", quote(d.DNS))
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
		v.refuse(path+".health.path", "%s; want a path, as /health", quote(h.Path))
	}
}

func (v *validator) haproxy() {
	h := &v.config.HAProxy
	if h.RuntimeAPI != "" {
		_, address, err := ParseAddress(h.RuntimeAPI)
		if err == nil && address[0] == ':' {
			err = errAddress
		}
		if err != nil {
			v.refuse("haproxy.runtime_api", "%s is no address; %v", quote(h.RuntimeAPI), err)
		}
	}
	if h.Version != "" {
		var major, minor int
		if m := versionForm.FindStringSubmatch(h.Version); m != nil {
			major, _ = strconv.Atoi(m[1])
			minor, _ = strconv.Atoi(m[2])
		}
		if major < 2 || major == 2 && minor < 6 {
			v.refuse("haproxy.version", "%s; want 2.6 or later, as 3.2", quote(h.Version))
		}
	}
	if _, err := parseHostPort(h.Bind); err != nil && !everywhere(h.Bind) {
		v.refuse("haproxy.bind", "%s; %v, or :8080", quote(h.Bind), err)
	}
	within(v, "haproxy.bufsize", h.Bufsize, 16<<10, 4<<20)
	within(v, "haproxy.poll", h.Poll, 10*time.Millisecond, time.Minute)
	within(v, "haproxy.processing_timeout", h.ProcessingTimeout, time.Millisecond, time.Hour)
}

// everywhere recognises *:port, which only HAProxy understands.
func everywhere(bind string) bool {
	rest, ok := strings.CutPrefix(bind, "*")
	host, err := parseHostPort(rest)
	return ok && host == "" && err == nil
}

func (v *validator) pool(p *Pool) {
	path := in("pools", p.Name)
	if !nameForm.MatchString(p.Name) {
		v.refuse(path, "no name for a pool, which is an HAProxy backend too; %s", nameWant)
	} else if strings.HasPrefix(p.Name, "pointsman-") {
		v.refuse(path, "names that begin with pointsman- are those of the rendered configuration itself")
	}
	if p.Engine != "" && !slices.Contains(Engines, p.Engine) {
		v.refuse(path+".engine", "%s", unknown("", p.Engine, Engines))
	}
	if p.Metrics != "" && !metricsForm.MatchString(p.Metrics) {
		v.refuse(path+".metrics", "%s; want a path as /metrics, a port and a path as :8002/metrics, or off", quote(p.Metrics))
	}
	v.events(path+".kv_events", &p.KVEvents)
	within(v, path+".max_requests", p.MaxRequests, 0, 1_000_000)
	within(v, path+".cache_tokens", p.CacheTokens, 0, 100_000_000)
	within(v, path+".retry_after", p.RetryAfter, 0, time.Hour)
	within(v, path+".slow_start", p.SlowStart, 0, 24*time.Hour)
	within(v, path+".spill", p.Spill, 0, 1_000_000)
	within(v, path+".lora_slots", p.LoRASlots, 1, 1024)
	if p.Locality && v.config.Agent == (Agent{}) {
		v.refuse(path+".locality", "the agent's own place is not told; want agent.node or agent.zone")
	}
	if p.LoRAAffinity && len(p.LoRA) == 0 {
		v.refuse(path+".lora_affinity", "the pool names no adapters; want them under lora")
	}
	if p.StickySessions && len(v.config.Session.Headers) == 0 {
		v.refuse(path+".sticky_sessions", "no request has a session; want session.headers")
	}
	v.discover(path, p)
	v.health(path, p.Health)
	if len(p.Replicas) == 0 && p.Discover.DNS == "" && p.Discover.File == "" && v.config.HAProxy.RuntimeAPI == "" && !v.bad[path+".discover"] && !v.bad[path+".replicas"] {
		v.refuse(path, "no replicas; want a list, discover, or haproxy.runtime_api to take them from the HAProxy backend of its name")
	}
	first := map[string]string{}
	for _, r := range p.Ordered() {
		at := in(path+".replicas", r.Name)
		v.replica(at, r)
		if other, ok := first[r.Address]; ok && r.Address != "" {
			v.refuse(at+".address", "%s is the address of replica %s too", quote(r.Address), label(other))
		}
		first[r.Address] = r.Name
	}
}

func (v *validator) events(path string, e *KVEvents) {
	within(v, path+".ranks", e.Ranks, 1, 256)
	ranks := max(e.Ranks, 1)
	within(v, path+".port", e.Port, 0, 65535-ranks+1)
	within(v, path+".replay", e.Replay, 0, 65535-ranks+1)
	if e.Port > 0 && e.Replay > 0 && max(e.Port, e.Replay)-min(e.Port, e.Replay) < ranks {
		v.refuse(path+".replay", "%d meets the ports of the events: want it %d or more away from %d", e.Replay, ranks, e.Port)
	}
	if e.Bind == "" {
		return
	}
	host, err := parseHostPort(e.Bind)
	switch {
	case err != nil:
		v.refuse(path+".bind", "%s is no address to listen on; %v", quote(e.Bind), err)
	case host == "":
		v.refuse(path+".bind", "%s is open to the network; want 127.0.0.1%s, or 0.0.0.0%[2]s if that is meant", quote(e.Bind), e.Bind)
	case e.Port > 0:
		v.refuse(path+".bind", "want either this or port")
	}
}

func (v *validator) replica(path string, r *Replica) {
	if !nameForm.MatchString(r.Name) {
		v.refuse(path, "no name for a replica, which is an HAProxy server too; %s", nameWant)
	}
	host, err := parseHostPort(r.Address)
	switch {
	case r.Address == "" && !v.bad[path+".address"]:
		v.refuse(path, "no address; want one, as {address: 10.0.0.1:8000}")
	case err != nil:
		v.refuse(path+".address", "%s; %v", quote(r.Address), err)
	case host == "":
		v.refuse(path+".address", "%s; %v", quote(r.Address), errHostPort)
	}
	within(v, path+".weight", r.Weight, 1, 256)
	v.events(path+".kv_events", &r.KVEvents)
	if r.KVEvents.Bind != "" {
		v.refuse(path+".kv_events.bind", "all replicas of a pool connect to one address; want it in the pool's kv_events")
	}
	within(v, path+".max_requests", r.MaxRequests, 0, 1_000_000)
	within(v, path+".cache_tokens", r.CacheTokens, 0, 100_000_000)
}

func (v *validator) policy(p *Pool, checks Checks) {
	path := in("pools", p.Name) + ".policy"
	p.Policy.src, p.Policy.path = v.source, path
	if _, ok := v.at[path+".name"]; ok {
		path += ".name"
	}
	if v.bad[path] {
		return
	}
	if len(checks.Policies) > 0 && !slices.Contains(checks.Policies, p.Policy.Name) {
		v.refuse(path, "%s", unknown("", p.Policy.Name, checks.Policies))
		return
	}
	if checks.Policy == nil {
		return
	}
	err := checks.Policy(&p.Policy)
	var many Errors
	var one Error
	switch {
	case errors.As(err, &many):
		v.errs = append(v.errs, many...)
	case errors.As(err, &one):
		v.errs = append(v.errs, one)
	case err != nil:
		v.refuse(path, "%v", err)
	}
}

// names checks that each model leads to one place, and that the place is there.
func (v *validator) names() {
	c := v.config
	first := map[string]string{}
	claim := func(model, path string) {
		if model == "" || len(model) > 256 || strings.ContainsFunc(model, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			v.refuse(path, "%s is no model name; want 1 to 256 bytes without control characters", quote(model))
			return
		}
		if other, ok := first[model]; ok {
			v.refuse(path, "model %s is in %s too; want it in one place", quote(model), other)
			return
		}
		first[model] = path
	}
	pools := make([]string, 0, len(c.Pools))
	for _, p := range c.Ordered() {
		pools = append(pools, label(p.Name))
		for i, m := range p.Models {
			claim(m, fmt.Sprintf("%s.models[%d]", in("pools", p.Name), i))
		}
		for i, m := range p.LoRA {
			claim(m, fmt.Sprintf("%s.lora[%d]", in("pools", p.Name), i))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		path := in("models", model)
		claim(model, path)
		if len(c.Models[model].Split) == 0 && !v.bad[path+".split"] {
			v.refuse(path, "want %s", routeWant)
		}
		for _, pool := range slices.Sorted(maps.Keys(c.Models[model].Split)) {
			at := path
			if _, ok := v.at[path+".split"]; ok {
				at = in(path+".split", pool)
			}
			if c.Pools[pool] == nil {
				v.refuse(at, "%s", unknown("pool ", pool, pools))
			}
			within(v, at, c.Models[model].Split[pool], 1, 1_000_000)
		}
	}
	if c.DefaultPool != "" && c.Pools[c.DefaultPool] == nil {
		v.refuse("default_pool", "%s", unknown("pool ", c.DefaultPool, pools))
	}
}
