package nginx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// As for HAProxy: sidecars must learn who computes a prompt, and nginx must not balance
// over those that do nothing else.
func TestAdvisePrefill(t *testing.T) {
	const text = `http {
    upstream vllm { server 10.0.0.2:8000; server 10.0.0.1:8000 down; }
    server {
        location @pm_target_1 { proxy_set_header x-prefiller-host-port $pm_prefill; proxy_pass http://$pm_server; }
    }
}
`
	for _, c := range []struct{ old, line, want string }{
		{"", "", ""},
		{"$pm_prefill", `""`, "prefill-header "},
		{"10.0.0.1:8000 down", "10.0.0.1:8000", "prefill-server "},
	} {
		file := filepath.Join(t.TempDir(), "nginx.conf")
		if err := os.WriteFile(file, []byte(strings.Replace(text, c.old, c.line, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := AdvisePrefill(file, "X-Prefiller-Host-Port", map[string]string{"10.0.0.1:8000": "p1"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range list {
			rules.See(f)
			if got += f.Rule + " "; f.Remedy == "" || f.Line == 0 {
				t.Errorf("incomplete: %+v", f)
			}
		}
		if got != c.want {
			t.Errorf("%q: found %q, want %q", c.line, got, c.want)
		}
	}
}
