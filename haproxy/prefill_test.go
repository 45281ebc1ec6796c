package haproxy

import (
	"strings"
	"testing"

	"pointsman/templates"
)

// Sidecars must learn who computes a prompt, clients must not say it, and HAProxy must not
// balance over those that do nothing else.
func TestAdvisePrefill(t *testing.T) {
	const text = `
frontend f
    bind :80
    filter spoe engine pointsman config /x
    http-request del-header x-prefiller-host-port
    http-request send-spoe-group pointsman pm-route if METH_POST
    http-request set-header X-Prefiller-Host-Port %[var(txn.pm.prefill)] if { var(txn.pm.prefill) -m found }
    default_backend llama
backend llama
    server d1 10.0.0.2:8000
    server p1 10.0.0.1:8000 weight 0
`
	found := func(old, line string, w Wanted) (list string) {
		for _, f := range Advise([]File{{"haproxy.cfg", []byte(strings.Replace(text, old, line, 1))}}, w) {
			if strings.HasPrefix(f.Rule, "prefill-") {
				rules.See(f)
				list += f.Rule + " "
			}
		}
		return list
	}
	w := Wanted{
		Version: templates.Version{Major: 3, Minor: 2}, Pools: []string{"llama"},
		Prefill: map[string]string{"10.0.0.1:8000": "p1"}, PrefillHeader: "x-prefiller-host-port",
	}
	for _, c := range []struct{ old, line, want string }{
		{"", "", ""},
		{"http-request set-header", "# http-request set-header", "prefill-header "},
		{"http-request del-header", "# http-request del-header", "prefill-forged "},
		{"server p1 10.0.0.1:8000 weight 0", "server any ipv4@10.0.0.1:8000", "prefill-server "},
	} {
		if got := found(c.old, c.line, w); got != c.want {
			t.Errorf("%q: found %q, want %q", c.line, got, c.want)
		}
		if got := found(c.old, c.line, Wanted{Version: w.Version, Pools: w.Pools}); got != "" {
			t.Errorf("%q: found %q without such replicas", c.line, got)
		}
	}
}
