package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// clear forgets where values stand, so that two configurations compare by what they
// mean.
func clearPositions(c *Config) {
	c.src = nil
	for _, p := range c.Pools {
		p.line, p.col, p.Policy = 0, 0, Policy{Name: p.Policy.Name}
		for _, r := range p.Replicas {
			r.line, r.col = 0, 0
		}
		for _, b := range p.Admission.Bands {
			b.line, b.col = 0, 0
		}
	}
}

// What is written means the same when it is read again.
func TestWriteIsRead(t *testing.T) {
	shipped, err := os.ReadFile("../packaging/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"smallest": smallest, "shipped": string(shipped),
		"everything off": "listen: {spoe: off, nginx: off, feed: off, admin: off}\n" + smallest,
		"much": `
listen: {nginx: unix:///run/n.sock, feed: "127.0.0.1:1", admin_hosts: [gw.example.org], socket_mode: "0600", socket_group: "007"}
session: {headers: [x-a, x-b]}
haproxy: {runtime_api: unix:///run/haproxy/admin.sock, version: "3.2", bufsize: 65000, poll: 1500ms}
scan: {limit: 2MiB, duplicate_models: refuse}
agent: {node: n1}
lease: 1h30m
default_pool: b
models: {"true": b, "a: b": {split: {b: 90, a: 10}}}
pools:
  b:
    models: ["null", "1.5", "x # y"]
    lora: [l]
    policy: {name: session, fallbacks: 3}
    engine: vllm
    kv_events: {port: 5557, replay: 5558}
    retry_after: 10s
    admission: {bands: {z: {priority: 0, ttl: 10m, max_bytes: 64MiB}, y: {spill: a, weight: 2}}, tenants: [user], tenant_weights: {gold: 3}}
    replicas: {z1: {address: '10.0.0.1:8000', zone: z, weight: 3}, a1: {address: '10.0.0.2:8000'}}
  a: {discover: {dns: 'v.internal:8000'}, health: {poll: 2s}}
`,
	} {
		c := parse(t, text)
		b, err := c.Write(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again", b, nil, checks)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, b)
			continue
		}
		if twice, err := again.Write(nil); err != nil || string(twice) != string(b) {
			t.Errorf("%s: written another time as\n%s\nand before\n%s", name, twice, b)
		}
		clearPositions(c)
		clearPositions(again)
		if !reflect.DeepEqual(c, again) {
			t.Errorf("%s: read again as\n%+v\nof\n%+v\n%s", name, again, c, b)
		}
		if !strings.Contains(string(b), "lease: ") || !strings.Contains(string(b), "processing_timeout: 50ms") {
			t.Errorf("%s: no defaults in\n%s", name, b)
		}
	}
}

// Secrets are masked: fields with the tag, and passwords in addresses.
func TestWriteMasksSecrets(t *testing.T) {
	v := struct {
		Token string   `yaml:"token" secret:"true"`
		Empty string   `yaml:"empty" secret:"true"`
		URL   string   `yaml:"url"`
		Peers []string `yaml:"peers"`
	}{"hunter2", "", "nats://ann:hunter2@10.0.0.1:4222", []string{"nats://10.0.0.1:4222", "tls://:hunter2@h"}}
	n := writer{}.fields(reflect.ValueOf(&v).Elem(), "")
	var all []string
	for _, x := range n.Content {
		all = append(all, x.Value)
		for _, y := range x.Content {
			all = append(all, y.Value)
		}
	}
	got := strings.Join(all, " ")
	if want := "token ******** url nats://ann:********@10.0.0.1:4222 peers  nats://10.0.0.1:4222 tls://:********@h"; got != want {
		t.Errorf("%s", got)
	}
}

// A policy in one line is the same policy when it is read again.
func TestPolicyFlow(t *testing.T) {
	for written, want := range map[string]string{
		"session":                           "session",
		"{name: session}":                   "session",
		"{load_bound: 1.25, name: session}": "{name: session, load_bound: 1.25}",
		"{name: session, x: &n 'a: b', y: [*n, 'it''s']}":                                 "{name: session, x: 'a: b', y: ['a: b', 'it''s']}",
		"\n      name: round_robin\n      formula: |  # ours\n        a +\n          b\n": `{name: round_robin, formula: "a +\n  b\n"}`,
	} {
		text := func(policy string) string {
			return "pools: {p: {models: [m], replicas: {r1: {address: '10.0.0.1:8000'}}, policy: " + policy + "}}\n"
		}
		if strings.Contains(written, "\n") {
			text = func(policy string) string {
				return "pools:\n  p:\n    models: [m]\n    replicas: {r1: {address: '10.0.0.1:8000'}}\n    policy: " + policy + "\n"
			}
		}
		read := func(written string) Policy {
			c, err := Parse("f", []byte(text(written)), nil, Checks{})
			if err != nil {
				t.Fatal(err)
			}
			return c.Pools["p"].Policy
		}
		p := read(written)
		if got := p.Flow(); got != want {
			t.Errorf("%s is written as %s, want %s", written, got, want)
		}
		again := read(p.Flow())
		if got := again.Flow(); got != want {
			t.Errorf("read again, %s is %s", want, got)
		}
	}
}
