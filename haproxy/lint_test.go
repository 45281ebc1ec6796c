package haproxy

import (
	"strings"
	"testing"

	"pointsman/advice"
	"pointsman/templates"
)

// good are configurations in front of engines with nothing to warn of.
var good = []string{`defaults
    mode http
    timeout server 600s
    timeout queue 60s
    option abortonclose
    option http-server-close
    option http-no-delay
    retry-on conn-failure
frontend web
    bind :80
    use_backend engines if { path_beg /v1/ }
    default_backend site
backend site
    timeout server 10s
    server s 10.9.9.9:80
backend engines
    balance leastconn
    server a 10.0.0.1:9000 maxconn 8
    server b 10.0.0.2:9000 maxconn 8
`, `global
    tune.bufsize 262144
defaults web
    mode http
    timeout server 10s
defaults llm from web
    timeout server 1h
    timeout queue 1m
    option abortonclose
    option http-server-close
    option http-no-delay
    retry-on conn-failure
backend vllm from llm
    balance leastconn
    default-server maxconn 4
    server a 10.0.0.1:8000
    server b 10.0.0.2:8000
`, `listen llama
    mode http
    timeout server 10m
    timeout queue 60s
    option abortonclose
    option http-server-close
    option http-no-delay
    retry-on conn-failure
    balance leastconn
    server a 10.0.0.1:80 maxconn 1
    server b 10.0.0.2:80
`}

func lintText(text string, version string, names ...string) []advice.Finding {
	list := Lint([]File{{"haproxy.cfg", []byte(text)}}, ParseRelease("HAProxy version "+version+" 2026/01/01"), names)
	for _, f := range list {
		rules.See(f)
	}
	return list
}

func TestLint(t *testing.T) {
	for i, text := range good {
		if got := lintText(text, "2.6.12"); len(got) != 0 {
			t.Errorf("configuration %d is good, yet: %v", i, got)
		}
	}
	replace := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	without := func(s string) func(string) string { return replace("    "+s+"\n", "") }
	for _, c := range []struct {
		rule, version, says string
		edit                func(string) string
	}{
		{"timeout-server", "2.6.12", "timeout server is 50s: a request whose first token", replace("timeout server 600s", "timeout server 50s", "timeout server 1h", "timeout server 50000", "timeout server 10m", "timeout server 50s")},
		{"timeout-queue", "2.6.12", "waits no longer than timeout connect", replace("    timeout queue 60s\n", "", "    timeout queue 1m\n", "")},
		{"abortonclose", "3.2.20", "no option abortonclose", without("option abortonclose")},
		{"server-close", "3.2.20", "closes idle ones after 5 s", without("option http-server-close")},
		{"no-delay", "3.4.0", "up to 200 ms", without("option http-no-delay")},
		{"balance", "3.0.1", "balance roundrobin over engines", without("balance leastconn")},
		{"balance", "3.4.1", "balance random over engines", without("balance leastconn")},
		{"retry-on", "3.0.1", "retry-on all-retryable-errors repeats", replace("retry-on conn-failure", "retry-on all-retryable-errors")},
		{"spoe-queue", "3.2.13", "HAProxy 3.2.13: with an SPOE filter", replace("balance leastconn", "filter spoe engine pointsman config x.conf\n    balance leastconn")},
	} {
		for i, text := range good {
			got := lintText(c.edit(text), c.version)
			if len(got) != 1 || got[0].Rule != c.rule || got[0].Level != advice.Warning || got[0].Line == 0 || got[0].Remedy == "" || !strings.Contains(got[0].String(), c.says) {
				t.Errorf("%s in configuration %d: %v, want one with %q", c.rule, i, got, c.says)
			}
		}
	}
	for _, version := range []string{"3.2.14", "3.0.5", "what"} {
		if got := lintText(strings.Replace(good[0], "balance leastconn", "filter spoe engine pointsman config x.conf\n balance leastconn", 1), version); len(got) != 0 {
			t.Errorf("%s: %v", version, got)
		}
	}
	if got := lintText(without("option abortonclose")(good[0]), "3.4.0"); len(got) != 0 {
		t.Errorf("3.4 has it on by default: %v", got)
	}
	if got := lintText(strings.Replace(good[0], "bind :80\n", "bind :80\n    http-request set-var(txn.m) req.body,json_query('$.model')\n", 1), "3.0.1"); len(got) != 1 || got[0].Rule != "bufsize" || got[0].Line != 11 {
		t.Errorf("a rule that reads the body: %v", got)
	}
	other := "defaults\n mode http\n timeout server 50s\nfrontend f\n default_backend app\nbackend app\n server a 10.0.0.1:80\n"
	if got := lintText(other, "2.6.12"); len(got) != 0 {
		t.Errorf("no engine, yet: %v", got)
	}
	if got := lintText(other, "2.6.12", "app"); len(got) != 4 {
		t.Errorf("named: %v", got)
	}
}

func TestParseRelease(t *testing.T) {
	want := Release{templates.Version{Major: 3, Minor: 2}, 13}
	if got := ParseRelease("HAProxy version 3.2.13-1+deb 2026/01/01 - https://haproxy.org/\nStatus: x"); got != want || got.String() != "3.2.13" {
		t.Errorf("%v", got)
	}
	if got := ParseRelease("what"); got.Patch != -1 {
		t.Errorf("%v", got)
	}
}
