package config

import (
	"strings"
	"testing"
)

// noEnv is an empty environment.
func noEnv(string) string { return "" }

const onePool = "pools: {a: {models: [m], replicas: {r: {address: 'h:1'}}}}\n"

// TestCluster: a cluster has all that it needs, and nothing that excludes each other.
func TestCluster(t *testing.T) {
	for text, want := range map[string]string{
		"{name: prod, listen: '10.0.0.5:9910', peers: ['10.0.0.6:9910', 'agents.example.org:9910'], secret_file: /s}": "",
		"{name: prod, agent: n1, nats: 'nats://user:word@10.0.0.9:4222,tls://other:4222', secret_file: /s}":           "",
		"{name: prod, nats: 'tls://n:4222', secret_file: /s, tls: {ca: /ca}}":                                         "",
		"{name: prod, listen: 'h:1', secret_file: /s, tls: {cert: /c, key: /k, ca: /ca}}":                             "",
		"{listen: 'h:1'}":                                                               "cluster: want a name",
		"{name: a b, listen: 'h:1'}":                                                    "cluster.name: \"a b\"",
		"{name: prod, listen: 'h:1'}":                                                   "want secret_file",
		"{name: prod, secret_file: /s}":                                                 "cluster: want listen",
		"{name: prod, secret_file: s, listen: 'h:1'}":                                   "cluster.secret_file: \"s\"; want the absolute path",
		"{name: prod, secret_file: /s, listen: ':9910'}":                                "cluster.listen: \":9910\"; want the address by which",
		"{name: prod, secret_file: /s, listen: 'h'}":                                    "cluster.listen: \"h\"; want host:port",
		"{name: prod, secret_file: /s, listen: 'h:0'}":                                  "cluster.listen: \"h:0\"; want host:port",
		"{name: prod, secret_file: /s, listen: 'h:1', peers: [x]}":                      "cluster.peers[0]: \"x\"; want host:port",
		"{name: prod, secret_file: /s, listen: 'h:1', nats: 'nats://h:2'}":              "cluster: want either listen and peers",
		"{name: prod, secret_file: /s, nats: 'http://user:word@h:2'}":                   "cluster.nats: not the URL of a NATS server",
		"{name: prod, secret_file: /s, nats: 'nats://hush@h:2'}":                        "cluster.nats: a user without a password",
		"{name: prod, secret_file: /s, listen: 'h:1', tls: {ca: /ca}}":                  "cluster.tls: want cert, key and ca",
		"{name: prod, secret_file: /s, nats: 'nats://h:2', tls: {cert: /c}}":            "cluster.tls: want cert and key together",
		"{name: prod, secret_file: /s, listen: 'h:1', agent: 'a b'}":                    "cluster.agent: \"a b\"",
		"{name: prod, secret_file: /s, listen: 'h:1', tls: {cert: c, key: /k, ca: /a}}": "cluster.tls.cert: \"c\"; want the absolute path",
	} {
		c, err := Parse("f.yaml", []byte("cluster: "+text+"\n"+onePool), noEnv, Checks{})
		switch {
		case want == "" && (err != nil || !c.Cluster.On()):
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		case err != nil && strings.Contains(err.Error(), "user:word"):
			t.Errorf("the password is shown: %v", err)
		}
	}
	a, _ := Parse("f.yaml", []byte(onePool), noEnv, Checks{})
	b, err := Parse("f.yaml", []byte("cluster: {name: prod, listen: 'h:1', secret_file: /s}\n"+onePool), noEnv, Checks{})
	if err != nil || a.Cluster.On() {
		t.Fatal(err)
	}
	if d := a.Diff(b); len(d) != 1 || d[0] != "cluster" {
		t.Errorf("a reload changes %v", d)
	}
}
