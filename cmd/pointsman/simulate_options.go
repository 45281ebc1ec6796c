package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/queue"
	"pointsman/sim"
	"pointsman/sim/replay"
)

// sharedCache names the bound: no policy, but one cache and one queue.
const sharedCache = "shared_cache"

// simulatedPolicy is a policy to replay, by the name that its row has. make is
// nil for the bound.
type simulatedPolicy struct {
	name string
	make func() (decider.Policy, error)
	late bool // it holds requests
}

// parsePolicies reads --policy: names, or names with options as the
// configuration has them, separated by commas. bounds are names that stand for
// no policy.
func parsePolicies(args []string, bounds ...string) ([]simulatedPolicy, error) {
	var list []simulatedPolicy
	names := append(policies.Names(), bounds...)
	for _, spec := range splitOutside(strings.Join(args, ","), ',') {
		switch spec = strings.TrimSpace(spec); {
		case spec == "":
			return nil, fmt.Errorf("policy: an empty name; want one of %s", strings.Join(names, ", "))
		case slices.Contains(bounds, spec):
			list = append(list, simulatedPolicy{name: spec})
			continue
		}
		c, err := parsePolicy(spec, names)
		if err != nil {
			return nil, err
		}
		list = append(list, simulatedPolicy{spec, func() (decider.Policy, error) {
			p, _, err := policies.New(c.Name, c)
			return p, err
		}, policies.Late(c.Name)})
	}
	return list, nil
}

// flowPolicy turns name:option=value:option=value into the configuration's own
// form, {name: …, option: value}, which it also takes as it is.
func flowPolicy(spec string) (string, error) {
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

// parsePolicy reads a policy with its options, by way of a configuration that
// has nothing else. names are those to offer for one that is unknown.
func parsePolicy(spec string, names []string) (*config.Policy, error) {
	flow, err := flowPolicy(spec)
	if err != nil {
		return nil, err
	}
	text := "pools: {pool: {replicas: {r0: {address: 127.0.0.1:1}}, policy: " + flow + "}}\n"
	c, err := config.Parse("--policy", []byte(text), nil, config.Checks{
		Policies: names, Policy: checks.Policy,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	return &c.Pools["pool"].Policy, nil
}

// splitOutside splits s at each sep that is in no brackets and no quotes.
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

// parseProfile reads a profile's name, and after a colon numbers in the place
// of its own: 70b:prefill_rate=8000,chunk=2048.
func parseProfile(spec string) (sim.Profile, error) {
	name, numbers, own := strings.Cut(spec, ":")
	p, err := sim.ProfileByName(name)
	if err != nil || !own {
		return p, err
	}
	fields := map[string]func(float64){
		"prefill_rate":    func(x float64) { p.PrefillRate = x },
		"chunk":           func(x float64) { p.Chunk = int(x) },
		"base_ms":         func(x float64) { p.Base = time.Duration(x * float64(time.Millisecond)) },
		"context_read_ns": func(x float64) { p.ContextRead = x },
		"attention_depth": func(x float64) { p.AttentionDepth = x },
		"max_running":     func(x float64) { p.MaxRunning = int(x) },
	}
	for _, part := range strings.Split(numbers, ",") {
		key, value, _ := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(value, 64)
		if fields[key] == nil || err != nil {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			return p, fmt.Errorf("profile: %q, want a number for one of %s, as chunk=2048", part, strings.Join(names, ", "))
		}
		fields[key](x)
	}
	p.Name = spec
	return p, p.Validate()
}

// parseFailures reads --fail: times and replicas as 60s@3.
func parseFailures(specs []string) ([]replay.Failure, error) {
	var list []replay.Failure
	for _, s := range specs {
		at, replica, _ := strings.Cut(s, "@")
		when, err := time.ParseDuration(at)
		n, err2 := strconv.Atoi(replica)
		if err != nil || err2 != nil || when < 0 {
			return nil, fmt.Errorf("fail: %q, want a time and a replica as 60s@3", s)
		}
		list = append(list, replay.Failure{At: when, Replica: n})
	}
	return list, nil
}

// admission is what the policy brings with it, nil for most. It lets requests
// wait for as long as the engines' own queues would.
func (p *simulatedPolicy) admission() *decider.Admission {
	if !p.late {
		return nil
	}
	return &decider.Admission{Hold: true, Bands: []queue.Band{{
		Name: config.DefaultBand, Order: queue.ByWork, TTL: 24 * time.Hour, MaxRequests: math.MaxInt,
	}}}
}
