package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
)

var checks = Checks{
	Policies: []string{"least_work", "power_of_two", "round_robin", "session"},
	Policy: func(p *Policy) error {
		options := struct {
			Fallbacks int `yaml:"fallbacks"`
		}{2}
		if p.Name != "session" {
			return p.Decode(&struct{}{})
		}
		if err := p.Decode(&options); err != nil {
			return err
		}
		if options.Fallbacks < 0 {
			return p.Refuse("fallbacks", "want 0 or more, not %d", options.Fallbacks)
		}
		return nil
	},
}

// smallest is a file with nothing but what must be there.
const smallest = "pools: {llama: {models: [m], replicas: {r1: {address: '10.0.0.1:8000'}}}}\n"

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("pointsman.yaml", []byte(text), nil, checks)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := parse(t, smallest)
	want := Default()
	want.Pools, want.src = c.Pools, c.src
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
	p := c.Pools["llama"]
	if p.Name != "llama" || p.Policy.Name != DefaultPolicy || !slices.Equal(p.Models, []string{"m"}) {
		t.Errorf("pool %+v", p)
	}
	if r := p.Replicas["r1"]; r.Name != "r1" || r.Address != "10.0.0.1:8000" || r.Weight != 1 {
		t.Errorf("replica %+v", r)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Errorf("warnings %v", w)
	}
}

func TestEveryKey(t *testing.T) {
	c := parse(t, `
listen: {spoe: "tcp://0.0.0.0:9000", nginx: "127.0.0.1:9902", feed: off, admin: "", admin_hosts: [gw.example.org], socket_mode: "0600", socket_group: proxies}
session: {headers: [X-Conversation, session_id]}
haproxy:
  runtime_api: unix:///run/haproxy/admin.sock
  version: 3.2
  bufsize: 64KiB
  bind: "*:80"
  poll: 1s
  processing_timeout: 20ms
  retry_sent: true
nginx: {bind: "127.0.0.1:80", processing_timeout: 30ms, body_buffer: 64KiB, retry_sent: true}
scan: {limit: 65536}
agent: {node: n1, zone: eu}
lease: 1m30s
default_pool: b
models:
  chat: {split: {b: 90, a: 10}}
  alias: a
pools:
  b: {discover: {dns: "vllm.internal:8000", poll: 1s}}
  c: {models: [c], discover: {file: /etc/targets.json}, health: {poll: 2s, path: /ping}}
  a:
    lora: [sql]
    policy: {name: session, fallbacks: 3}
    engine: vllm
    metrics: :8002/metrics
    kv_events: {port: 5557, replay: 5657, ranks: 2}
    max_requests: 64
    retry_after: 20s
    cache_tokens: 300000
    slow_start: 30s
    sticky_sessions: true
    lora_affinity: true
    locality: true
    spill: 16
    lora_slots: 4
    replicas:
      z: {address: "[::1]:8000", zone: eu, node: n1, weight: 256, max_requests: 8, cache_tokens: 900000}
      a: {address: "gpu-1.example:8000"}
`)
	r := &Replica{Name: "z", Address: "[::1]:8000", Zone: "eu", Node: "n1", Role: RoleBoth, Weight: 256, MaxRequests: 8, CacheTokens: 900_000, KVEvents: KVEvents{Ranks: 1}, line: 39, col: 7}
	if got := c.Pools["a"].Replicas["z"]; !reflect.DeepEqual(got, r) {
		t.Errorf("replica %+v", got)
	}
	a := c.Pools["a"]
	if a.Policy.Name != "session" || a.Engine != "vllm" || a.Metrics != ":8002/metrics" || a.KVEvents != (KVEvents{5557, 5657, 2, ""}) || a.MaxRequests != 64 || a.RetryAfter != 20*time.Second || a.CacheTokens != 300_000 || a.SlowStart != 30*time.Second || a.LoRA[0] != "sql" {
		t.Errorf("pool %+v", a)
	}
	if !a.StickySessions || !a.LoRAAffinity || !a.Locality || a.Spill != 16 || a.LoRASlots != 4 || c.Agent != (Agent{Node: "n1", Zone: "eu"}) {
		t.Errorf("filters of pool %+v, agent %+v", a, c.Agent)
	}
	if b := c.Pools["b"]; b.StickySessions || b.LoRAAffinity || b.Locality || b.Spill != DefaultSpill || b.LoRASlots != decider.DefaultLoRASlots {
		t.Errorf("filters of pool %+v", b)
	}
	if n := (Nginx{"127.0.0.1:80", 30 * time.Millisecond, 64 << 10, true}); c.Nginx != n {
		t.Errorf("nginx %+v", c.Nginx)
	}
	if d := (Discover{DNS: "vllm.internal:8000", Poll: time.Second}); c.Pools["b"].Discover != d {
		t.Errorf("discover %+v", c.Pools["b"].Discover)
	}
	if p := c.Pools["c"]; p.Discover != (Discover{File: "/etc/targets.json", Poll: 5 * time.Second}) || p.Health != (Health{2 * time.Second, "/ping"}) {
		t.Errorf("discover %+v, health %+v", p.Discover, p.Health)
	}
	if a.Discover.DNS+a.Discover.File != "" || a.Health != (Health{0, "/health"}) {
		t.Errorf("discover %+v, health %+v", a.Discover, a.Health)
	}
	if !reflect.DeepEqual(c.Listen, Listen{SPOE: "tcp://0.0.0.0:9000", Nginx: "127.0.0.1:9902", AdminHosts: []string{"gw.example.org"}, SocketMode: "0600", SocketGroup: "proxies"}) || c.Listen.Mode() != 0o600 {
		t.Errorf("listen %+v", c.Listen)
	}
	h := HAProxy{"unix:///run/haproxy/admin.sock", "3.2", 64 << 10, 0, "*:80", time.Second, 20 * time.Millisecond, false, true}
	if c.HAProxy != h || c.Scan.Limit != 65536 || c.Lease != 90*time.Second || c.DefaultPool != "b" {
		t.Errorf("got %+v", c)
	}
	routes := map[string]Route{"chat": {map[string]int{"a": 10, "b": 90}}, "alias": {map[string]int{"a": 1}}}
	if !reflect.DeepEqual(c.Models, routes) {
		t.Errorf("models %+v", c.Models)
	}
	// In the order of the file, not of the names.
	if pools := c.Ordered(); pools[0].Name != "b" || pools[2].Name != "a" {
		t.Errorf("pools out of order")
	}
	if replicas := a.Ordered(); replicas[0].Name != "z" || replicas[1].Name != "a" {
		t.Errorf("replicas out of order")
	}
}

func TestAliasesShareReplicas(t *testing.T) {
	c := parse(t, `
pools:
  a: {models: [m], replicas: &all {r1: {address: "10.0.0.1:8000"}, r2: {address: "10.0.0.2:8000"}}}
  b: {models: [n], replicas: *all}
`)
	if len(c.Pools["b"].Replicas) != 2 || c.Pools["a"].Replicas["r1"] == c.Pools["b"].Replicas["r1"] {
		t.Errorf("got %+v", c.Pools["b"].Replicas)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pointsman.yaml")
	if _, err := Load(path, nil, checks); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("lease: 5"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, nil, checks); err == nil || !strings.Contains(err.Error(), path+":1:8: lease: ") {
		t.Errorf("got %v", err)
	}
}

func TestSessionHeaders(t *testing.T) {
	file := "session: {headers: [from-file]}\n" + smallest
	for _, tc := range []struct {
		name, text, own, ray, want string
	}{
		{"default", smallest, "", "", "x-session-id x-claude-code-session-id x-session-affinity session-id"},
		{"a bad field", "session: {body: [user]}\n" + smallest, "", "", `f:1:18: session.body[0]: unknown field "user"; want some of metadata.session_id, conversation, prompt_cache_key, metadata.user_id`},
		{"file", file, "", "", "from-file"},
		{"own", file, "a, b_c,,", "ray", "a b_c"},
		{"ray", smallest, " ,", "ray", "ray"},
		{"ray after the file", file, "", "ray", "from-file"},
		{"none", "session: {headers: []}\n" + smallest, "", "ray", ""},
		{"own is bad", file, "a,b:c", "", `environment: POINTSMAN_SESSION_HEADER: "b:c" is not a header name; want names such as x-session-id, separated by commas`},
		{"ray is bad", smallest, "", "é", `environment: RAY_SERVE_SESSION_ID_HEADER_KEY: "é" is not a header name; want names such as x-session-id, separated by commas`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Parse("f", []byte(tc.text), func(name string) string {
				return map[string]string{SessionEnv: tc.own, RaySessionEnv: tc.ray}[name]
			}, checks)
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(c.Session.Headers, " ")
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPolicyOptions(t *testing.T) {
	type options struct {
		Fallbacks int           `yaml:"fallbacks"`
		Bound     float64       `yaml:"bound"`
		Sticky    bool          `yaml:"sticky"`
		Every     time.Duration `yaml:"every"`
	}
	defaults := options{1, 1.25, true, time.Second}
	for text, want := range map[string]struct {
		options
		err string
	}{
		"session":         {options: defaults},
		"{name: session}": {options: defaults},
		"{name: session, fallbacks: 3, bound: 2}":               {options: options{3, 2, true, time.Second}},
		"{name: session, bound: 1.5, sticky: false, every: 2m}": {options: options{1, 1.5, false, 2 * time.Minute}},
		"{name: session, bound: .inf}":                          {err: `f:1:44: pools[a].policy.bound: want a number, not ".inf"`},
		"{name: session, sticky: yes}":                          {err: `f:1:45: pools[a].policy.sticky: want true or false, not "yes"`},
		"{name: session, every: 2, fallbacks: 1e3}":             {err: "f:1:44: pools[a].policy.every: want a duration with its unit, 0s or more, such as 250ms, 10s or 1h, not \"2\"\nf:1:58: pools[a].policy.fallbacks: want a whole number, not \"1e3\""},
		"{name: session, bound: 0x1p-2}":                        {err: `f:1:44: pools[a].policy.bound: want a number, not "0x1p-2"`},
	} {
		got := defaults
		_, err := Parse("f", []byte("pools: {a: {policy: "+text+", replicas: {r: {address: 'h:1'}}}}"), nil, Checks{
			Policy: func(p *Policy) error { return p.Decode(&got) },
		})
		if want.err != "" {
			if err == nil || err.Error() != want.err {
				t.Errorf("%s: got %v, want %s", text, err, want.err)
			}
		} else if err != nil || got != want.options {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	// A policy made in code has no options and no position.
	got := defaults
	if err := (&Policy{Name: "session"}).Decode(&got); err != nil || got != defaults {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An error without a position of its own is reported at the policy's name.
func TestPolicyError(t *testing.T) {
	_, err := Parse("f", []byte("pools: {a: {policy: session, replicas: {r: {address: 'h:1'}}}}"), nil, Checks{
		Policy: func(*Policy) error { return errors.New("out of order") },
	})
	if err == nil || err.Error() != "f:1:21: pools[a].policy: out of order" {
		t.Errorf("got %v", err)
	}
}

func TestDiff(t *testing.T) {
	base := parse(t, "haproxy: {runtime_api: '127.0.0.1:9999'}\n"+smallest)
	for text, want := range map[string][]string{
		smallest: {"haproxy.runtime_api"},
		"haproxy: {runtime_api: '127.0.0.1:9999', poll: 1s}\nlisten: {spoe: off, feed: off, admin: off, admin_hosts: [a.b], socket_mode: \"0666\", socket_group: g}\n" + smallest: {"listen.spoe", "listen.feed", "listen.admin", "listen.admin_hosts", "listen.socket_mode", "listen.socket_group", "haproxy.poll"},
		// All of this is live.
		"haproxy: {runtime_api: '127.0.0.1:9999', bind: ':80', bufsize: 64KiB, version: 3.0, processing_timeout: 1s}\n" +
			"lease: 1m\nscan: {limit: 2KiB}\nsession: {headers: [a]}\ndefault_pool: other\nmodels: {x: other}\npools: {other: {models: [y]}}\n": nil,
	} {
		if got := base.Diff(parse(t, text)); !slices.Equal(got, want) {
			t.Errorf("%s got %v, want %v", text, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	c := parse(t, `listen:
  spoe: off
  feed: tcp://10.0.0.9:9901
  admin: 0.0.0.0:9909
haproxy: {runtime_api: "unix:///run/haproxy/admin.sock"}
pools:
  stray:
  llama: {models: [m]}
`)
	var got []string
	for _, w := range c.Warnings() {
		got = append(got, w.Error())
	}
	want := []string{
		`pointsman.yaml:2:9: listen.spoe: off: no proxy can ask for a decision`,
		`pointsman.yaml:3:9: listen.feed: "tcp://10.0.0.9:9901" is reachable from other machines: anyone who reaches it can forge outcomes`,
		`pointsman.yaml:4:10: listen.admin: "0.0.0.0:9909" is reachable from other machines: anyone who reaches it can read metrics and decisions`,
		`pointsman.yaml:7:3: pools[stray]: no model routes here: only requests that the proxy itself assigns to this pool reach it`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The only pool needs no models: it takes them all, unless others are named.
func TestOnlyPoolTakesAll(t *testing.T) {
	const pool = "pools: {a: {replicas: {r: {address: 'h:1'}}}}\n"
	if w := parse(t, pool).Warnings(); len(w) != 0 {
		t.Errorf("got %v", w)
	}
	const others = "pools: {a: {replicas: {r: {address: 'h:1'}}}, b: {models: [m], replicas: {r: {address: 'h:2'}}}}\n"
	if w := parse(t, others).Warnings(); len(w) != 1 {
		t.Errorf("got %v, want one about a", w)
	}
}

// The packaged file parses as it is and with every commented key switched on,
// and it shows every key there is.
func TestPackagedFile(t *testing.T) {
	data, err := os.ReadFile("../packaging/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if w := parse(t, string(data)).Warnings(); len(w) > 0 {
		t.Errorf("warnings %v", w)
	}
	all := regexp.MustCompile(`(?m)^#([^\s#])`).ReplaceAll(data, []byte("$1"))
	all = regexp.MustCompile(`(?m)^#( +[^\s#])`).ReplaceAllFunc(all, func(line []byte) []byte {
		if len(line)-2 >= 2 { // prose has one space
			return line[1:]
		}
		return line
	})
	c := parse(t, string(all))
	if c.Pools["llama"].Engine != "vllm" || c.DefaultPool != "llama" || len(c.Models) != 2 || c.HAProxy.Version != "3.2" {
		t.Errorf("commented keys were not switched on:\n%s", all)
	}
	defaults := Default()
	defaults.Listen.Nginx, defaults.Listen.SocketGroup = c.Listen.Nginx, c.Listen.SocketGroup
	defaults.HAProxy.Version, defaults.HAProxy.RuntimeAPI = c.HAProxy.Version, c.HAProxy.RuntimeAPI
	defaults.Record.File, defaults.Tracing.Endpoint = c.Record.File, c.Tracing.Endpoint
	if !reflect.DeepEqual(c.Listen, defaults.Listen) || c.HAProxy != defaults.HAProxy || c.Nginx != defaults.Nginx || c.Scan != defaults.Scan || c.Record != defaults.Record || c.Tracing != defaults.Tracing || c.Lease != defaults.Lease || c.Mode != defaults.Mode ||
		!slices.Equal(c.Session.Headers, defaults.Session.Headers) {
		t.Errorf("the file shows other defaults than there are: %+v", c)
	}
	for _, key := range keys(reflect.TypeFor[Config]()) {
		shown := `(?m)^[^#]*\b` + key + `:`
		if key == "nats" { // excludes what is shown
			shown = `"nats: `
		}
		if !regexp.MustCompile(shown).Match(all) {
			t.Errorf("key %s is not shown", key)
		}
	}
}

// keys lists the yaml keys of t and of what it holds.
func keys(t reflect.Type) (all []string) {
	switch t.Kind() {
	case reflect.Map, reflect.Pointer:
		return keys(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if key := t.Field(i).Tag.Get("yaml"); key != "" && key != "-" {
				all = append(all, key)
				all = append(all, keys(t.Field(i).Type)...)
			}
		}
	}
	return all
}

// What the units and the environment file promise is what this package reads.
func TestPackagingAgrees(t *testing.T) {
	for file, want := range map[string]string{
		"../templates/systemd/pointsman-spoe.socket": "\nListenStream=" + strings.TrimPrefix(Default().Listen.SPOE, "unix://") + "\n",
		"../packaging/pointsman.default":             "\n#" + SessionEnv + "=" + Default().Session.Headers[0] + "\n",
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) {
			t.Errorf("%s has no line %q", file, want)
		}
	}
}
