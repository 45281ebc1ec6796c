package resolve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
)

// made counts the policies that the table of the tests has constructed.
var made int

var policies = policy.Table{
	policy.Plain("least_work", func() decider.Policy { made++; return policy.LeastWork{} }),
	policy.Plain("least_work_late", func() decider.Policy { return policy.LeastWorkLate{} }).BindsLate(),
	policy.With("kv_aware", decider.TokenDefaults, policy.NewKVAware),
	policy.With("session", policy.SessionOptions{Fallbacks: 2}, policy.NewSession),
}

// parse reads and resolves a text, on a machine without HAProxy.
func parse(t *testing.T, text string) (*Config, error) {
	t.Helper()
	return parseWith(t, text, Options{Policies: policies, Installed: func() (string, error) { return "", errors.New("none") }})
}

func parseWith(t *testing.T, text string, o Options) (*Config, error) {
	t.Helper()
	c, err := config.Parse("f", []byte(text), nil, o.Checks())
	if err != nil {
		t.Fatal(err)
	}
	return Resolve(c, o)
}

// Each policy is constructed once for each load, and the installed HAProxy is
// asked for its version at most once, however often the results are used.
func TestResolvedOnce(t *testing.T) {
	asked := 0
	o := Options{Policies: policies, Installed: func() (string, error) {
		asked++
		return "HAProxy version 2.8.5 2023/12/09 - https://haproxy.org/", nil
	}}
	made = 0
	r, err := parseWith(t, `pools:
  a: {models: [a], max_requests: 4, replicas: {r1: {address: 'h:1'}}, admission: {}}
  b: {models: [b], max_requests: 4, replicas: {r1: {address: 'h:2'}}, admission: {}}
`, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		dc := r.Intake()
		if len(dc.Pools) != 2 || dc.Pools[0].Policy != r.Pools[0].Policy || dc.Pools[0].Admission.Hold {
			t.Errorf("%+v", dc.Pools)
		}
		if h, err := r.HAProxy(); err != nil || h.Version.String() != "2.8" || h.Waiting != 2000 {
			t.Errorf("%+v, %v", h, err)
		}
		r.Warnings()
	}
	if made != 2 || asked != 1 {
		t.Errorf("%d policies constructed for 2 pools, the version looked up %d times", made, asked)
	}
	if r.MaxHeld() != 0 {
		t.Errorf("the agent holds %d requests that wait in the proxy", r.MaxHeld())
	}
	asked = 0
	if _, err := parseWith(t, "pools: {a: {replicas: {r1: {address: 'h:1'}}}}", o); err != nil || asked != 0 {
		t.Errorf("%v; the version was looked up %d times where it does not matter", err, asked)
	}
	o.HAProxyVersion = "3.2"
	if r, err := parseWith(t, "haproxy: {version: 2.6}\npools: {a: {replicas: {r1: {address: 'h:1'}}, admission: {}}}", o); err != nil {
		t.Error(err)
	} else if v, err := r.HAProxyVersion(); err != nil || v.String() != "3.2" || asked != 0 || r.MaxHeld() != queue.DefaultMaxRequests {
		t.Errorf("%v, %v, %d held", v, err, r.MaxHeld())
	}
}

func TestPolicyOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	load := func(policy string) (*Config, error) {
		text := "pools: {a: {policy: " + policy + ", replicas: {r1: {address: 'h:1'}}}}"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(file, Options{Policies: policies})
	}
	for policy, want := range map[string]string{
		"nonsense":                      `pools[a].policy: unknown "nonsense"; want least_work, least_work_late, kv_aware or session`,
		"{name: session, fallbacks: 3}": "pools[a].policy.fallbacks: want 0, 1 or 2",
		"{name: session, fallback: 3}":  `pools[a].policy: unknown key "fallback"; did you mean fallbacks?`,
	} {
		if _, err := load(policy); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", policy, err, want)
		}
	}
	keys := map[string]bool{}
	for _, policy := range []string{"session", "{name: session, fallbacks: 2}", "{name: session, fallbacks: 1}"} {
		r, err := load(policy)
		if err != nil {
			t.Fatal(err)
		}
		keys[r.Pool("a").PolicyKey] = true
	}
	if len(keys) != 2 {
		t.Errorf("keys %v, want one for the defaults, written out or not, and another", keys)
	}
	if _, err := Load(file+".absent", Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestDecider(t *testing.T) {
	r, err := parse(t, `
agent: {zone: z}
default_pool: b
models: {m: {split: {b: 1, a: 3}}}
pools:
  a: {models: [a], lora: [l], locality: true, max_requests: 3, replicas: {r1: {address: 'h:1', max_requests: 7, zone: z}}}
  b: {discover: {dns: 'vllm:8000'}, admission: {no_replica: hold, wait: agent, matching: fifo, tenants: [user, x-t], band_header: x-b, bands: {x: {order: work, priority: 3}}}}
`)
	if err != nil {
		t.Fatal(err)
	}
	dc := r.Intake()
	if got := fmt.Sprint(dc.Routes["m"]); got != "[{a 3} {b 1}]" || dc.DefaultPool != "b" {
		t.Errorf("routes %s, default pool %s", got, dc.DefaultPool)
	}
	a, b := dc.Pools[0], dc.Pools[1]
	if a.Limit != 3 || a.Replicas[0].Limit != 7 || a.Zone != "z" || len(a.Filters) != 1 || a.Filters[0].Name() != "locality" || a.LoRASlots == 0 || a.Admission != nil || a.Discover {
		t.Errorf("%+v", a)
	}
	if len(b.Replicas) != 0 || b.Discover || b.Admission == nil {
		t.Fatalf("%+v", b)
	}
	if ad := b.Admission; !ad.Hold || !ad.FIFO || !ad.HoldWithoutReplica || len(dc.Classes[b.Name].Tenants) != 2 || dc.Classes[b.Name].Calendar == nil ||
		len(ad.Bands) != 1 || ad.Bands[0].Order != queue.ByWork || !dc.Classes[b.Name].Rules[0].ByPriority || dc.Classes[b.Name].Rules[0].Priority != 3 {
		t.Errorf("%+v", ad)
	}
	if r.Pool("c") != nil || r.Pool("b").Source().DNS != "vllm:8000" {
		t.Error("pools by name")
	}
}

func TestTemplateOptions(t *testing.T) {
	targets := filepath.Join(t.TempDir(), "targets.json")
	if err := os.WriteFile(targets, []byte(`[{"targets": ["10.0.0.2:1", "10.0.0.1:1"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	pools := `
pools:
  a: {models: [a], lora: [l], replicas: {r1: {address: 'h:1'}}}
  b: {discover: {dns: 'vllm:8000'}}
  c: {discover: {file: ` + targets + `}, admission: {wait: agent, response_headers: true}}
`
	r, err := parse(t, "listen: {nginx: '127.0.0.1:1'}"+pools)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Nginx()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range n.Pools {
		got = append(got, fmt.Sprint(p.Name, p.Models, p.Replicas, p.AdmissionHeaders))
	}
	if want := []string{"a[a l] [{r1 h:1 1 0}] false", "b[] [{dns:1 vllm:8000 0 0}] false", "c[] [{file:1 10.0.0.1:1 0 0} {file:2 10.0.0.2:1 0 0}] true"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n.Dir != NginxDir || n.BodyBuffer != 1<<20 || n.ProcessingTimeout != ProcessingTimeout(queue.DefaultTTL) {
		t.Errorf("%+v", n)
	}
	if _, err := r.HAProxy(); err == nil || !strings.Contains(err.Error(), "--version") {
		t.Errorf("without a version: %v", err)
	}
	for top, want := range map[string]string{
		"listen: {feed: off, nginx: '127.0.0.1:1'}": "listen.feed is off: nginx reports",
		"listen: {spoe: off}":                       "listen.nginx is off",
	} {
		r, err := parse(t, top+pools)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Nginx(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", top, err)
		}
		if _, err := r.HAProxy(); err == nil || !strings.Contains(err.Error(), "HAProxy needs both") {
			t.Errorf("%s: %v", top, err)
		}
	}
	if err := os.Remove(targets); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Nginx(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file of targets: %v", err)
	}
}

// An installed HAProxy is asked, or its absence is reported.
func TestInstalledVersion(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if v, err := InstalledVersion(); err == nil {
		t.Errorf("found %v", v)
	}
	if err := os.WriteFile(filepath.Join(dir, "haproxy"), []byte("#!/bin/sh\necho HAProxy version 3.0.1 2024/06/10\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if v, err := InstalledVersion(); err != nil || v.String() != "3.0" {
		t.Errorf("%v, %v", v, err)
	}
}
