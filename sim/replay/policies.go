package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
)

// The names of the results of RunShared and RunBound.
const (
	SharedCache = "shared_cache"
	LowerBound  = "lower_bound"
)

// Policy is a policy to replay.
type Policy struct {
	Name string // as it was given
	Flow string // as a YAML flow mapping, for a configuration
	Late bool   // it holds requests until a replica has capacity
	// Prefill is how many of the replicas only compute prompts.
	Prefill int
	Queue   *RouterQueue // of the router, nil for none
	// New makes an instance; nil stands for SharedCache or LowerBound.
	New func() (decider.Policy, error)
}

// ParsePolicies reads policies of the table from command-line arguments: names,
// or names with options, separated by commas. Options are in the form
// name:option=value or in that of the configuration, {name: …, option: value}.
// bounds are further names to accept, such as SharedCache.
func ParsePolicies(table policy.Table, args []string, bounds ...string) ([]Policy, error) {
	var list []Policy
	names := append(table.Names(), bounds...)
	for _, spec := range splitOutside(strings.Join(args, ","), ',') {
		spec = strings.TrimSpace(spec)
		if spec == "" {
			return nil, fmt.Errorf("policy: an empty name; want one of %s", strings.Join(names, ", "))
		}
		if slices.Contains(bounds, spec) {
			list = append(list, Policy{Name: spec})
			continue
		}
		p, err := parsePolicy(table, spec, names)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// parsePolicy reads one policy as part of a minimal configuration. names are
// those that the error for an unknown policy offers.
func parsePolicy(table policy.Table, spec string, names []string) (Policy, error) {
	flow, err := flowMapping(spec)
	if err != nil {
		return Policy{}, err
	}
	text := "pools: {pool: {replicas: {r0: {address: 127.0.0.1:1}}, policy: " + flow + "}}\n"
	c, err := config.Parse("--policy", []byte(text), nil, config.Checks{
		Policies: names,
		Policy:   func(p *config.Policy) error { return table.Check(p.Name, p) },
	})
	if err != nil {
		return Policy{}, refusal(spec, err)
	}
	p := &c.Pools["pool"].Policy
	return Policy{Name: spec, Flow: flow, Late: table.Late(p.Name), New: func() (decider.Policy, error) {
		made, _, err := table.New(p.Name, p)
		return made, err
	}}, nil
}

// refusal is the error for a policy, without its place in the configuration that was made
// for it.
func refusal(spec string, err error) error {
	list, ok := errors.AsType[config.Errors](err)
	if !ok {
		return fmt.Errorf("policy %s: %w", spec, err)
	}
	var lines []string
	for _, e := range list {
		option, ok := strings.CutPrefix(e.Path, "pools[pool].policy.")
		if ok && option != "name" {
			option += ": "
		} else {
			option = ""
		}
		lines = append(lines, "policy "+spec+": "+option+e.Msg)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// flowMapping converts name:option=value:option=value to {name: …, option:
// value}.
func flowMapping(spec string) (string, error) {
	if strings.HasPrefix(spec, "{") {
		return spec, nil
	}
	parts := splitOutside(spec, ':')
	flow := "{name: " + parts[0]
	for _, p := range parts[1:] {
		option, value, ok := strings.Cut(p, "=")
		if !ok {
			return "", fmt.Errorf("policy %s: %q, want option=value", parts[0], p)
		}
		flow += ", " + option + ": " + value
	}
	return flow + "}", nil
}

// splitOutside splits s at each sep that is not in brackets or quotes.
func splitOutside(s string, sep byte) []string {
	var parts []string
	depth, from, quote := 0, 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '[' || c == '(':
			depth++
		case c == '}' || c == ']' || c == ')':
			depth--
		case c == sep && depth == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

// Admission returns the admission that the policy needs, nil for most. It lets
// requests wait as long as the engines' own queues would or, with shed, as long
// and as many as production's default.
func (p *Policy) Admission(shed bool) *decider.Admission {
	if !p.Late {
		return nil
	}
	if shed {
		return &decider.Admission{Hold: true, Bands: []queue.Band{{
			Name: config.DefaultBand, Order: queue.ByWork, TTL: queue.DefaultTTL, MaxRequests: queue.DefaultMaxRequests,
		}}}
	}
	return &decider.Admission{Hold: true, Bands: []queue.Band{{
		Name: config.DefaultBand, Order: queue.ByWork, TTL: 24 * time.Hour, MaxRequests: math.MaxInt,
	}}}
}
