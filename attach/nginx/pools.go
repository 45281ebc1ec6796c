package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"pointsman/resolve"
)

var notInPool = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// name gives each target the name of its pool in a configuration that is made
// from nginx's: that of its upstream.
func name(targets []*target) {
	taken := map[string]bool{}
	for _, t := range targets {
		base := "llm"
		if t.upstream != nil {
			base = notInPool.ReplaceAllString(t.host, "-")
			base = base[:min(len(base), 48)]
			if strings.HasPrefix(base, "pointsman-") {
				base = "llm"
			}
		}
		t.pool = base
		for n := 2; taken[strings.ToLower(t.pool)]; n++ {
			t.pool = fmt.Sprint(base, "-", n)
		}
		taken[strings.ToLower(t.pool)] = true
	}
}

// match gives each target its pool in an existing configuration. The pool is empty if the
// model decides.
func match(targets []*target, scheme map[*target]string, r *resolve.Config, file string) error {
	for _, t := range targets {
		t.pool = ""
		if p := r.Pool(t.host); p != nil {
			t.pool = p.Name
			continue
		}
		if len(r.Pools) == 1 {
			t.pool = r.Pools[0].Name
			continue
		}
		common := overlap(t, scheme[t], r)
		switch len(common) {
		case 0:
			return fmt.Errorf("%s has no pool of the name or with the servers of %s: add one under pools", file, t.host)
		case 1:
			t.pool = common[0]
		}
	}
	return nil
}

// compare notes servers that are no replicas of their pool.
func (r *Result) compare(targets []*target, scheme map[*target]string, conf *resolve.Config, file string) {
	for _, t := range targets {
		p := conf.Pool(t.pool)
		if p == nil || len(p.Replicas) == 0 {
			continue
		}
		list, _, err := t.servers(scheme[t])
		if err != nil {
			continue
		}
		for _, s := range list {
			known := false
			for _, replica := range p.Replicas {
				known = known || replica.Address == s.address
			}
			if !known && s.at != "" {
				r.note("%s: %s is no replica of pool %s in %s: nginx uses it without a decision only: add it there", s.at, s.address, t.pool, file)
			}
		}
	}
}

// overlap returns the pools that have a replica at one of the target's addresses.
func overlap(t *target, scheme string, r *resolve.Config) (pools []string) {
	list, _, err := t.servers(scheme)
	if err != nil {
		return nil
	}
	for i := range r.Pools {
		for _, replica := range r.Pools[i].Replicas {
			if slices.ContainsFunc(list, func(s server) bool { return s.address == replica.Address }) {
				pools = append(pools, r.Pools[i].Name)
				break
			}
		}
	}
	return pools
}

// yaml is a configuration of pointsman for the targets.
func yaml(targets []*target, scheme map[*target]string) (text string, notes []string, err error) {
	var b strings.Builder
	b.WriteString("# Written by `pointsman attach nginx` from nginx's configuration. All keys:\n# docs/configuration.md.\nlisten:\n  nginx: unix:///run/pointsman/nginx.sock\n  spoe: off # where HAProxy would ask: without this line at /run/pointsman/spoe.sock\npools:\n")
	for _, t := range targets {
		list, more, err := t.servers(scheme[t])
		if err != nil {
			return "", nil, err
		}
		notes = append(notes, more...)
		fmt.Fprintf(&b, "  %s: # %s\n", yamlKey(t.pool), t.where())
		if scheme[t] == "https" {
			b.WriteString("    metrics: \"off\" # the servers speak TLS\n")
			notes = append(notes, t.host+": servers speak TLS: pointsman does not ask them for their metrics, and goes by its own account")
		}
		b.WriteString("    replicas:\n")
		for i, s := range list {
			weight := ""
			if w, err := strconv.Atoi(s.weight); err == nil && w > 1 {
				if w > 256 {
					notes = append(notes, fmt.Sprintf("%s: weight %d becomes 256, the most that pointsman takes", s.at, w))
				}
				weight = fmt.Sprintf(", weight: %d", min(w, 256))
			}
			fmt.Fprintf(&b, "      r%d: {address: %q%s}\n", i+1, s.address, weight)
		}
	}
	return b.String(), notes, nil
}

// where describes the place of the target in nginx's configuration.
func (t *target) where() string {
	if t.upstream != nil {
		return "upstream " + t.host + ", " + t.upstream.At()
	}
	return "proxy_pass to " + t.host
}

// plainKey is a YAML key that needs no quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z_][\w.-]*$`)

func yamlKey(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	if plainKey.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
