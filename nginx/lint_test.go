package nginx

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/advice"
)

// good are configurations in front of engines with nothing to warn of.
var good = []string{`http {
    client_max_body_size 50m;
    upstream vllm {
        least_conn;
        zone vllm 64k;
        server 10.0.0.1:8000 max_fails=3 fail_timeout=10s;
        server 10.0.0.2:8000;
        keepalive 16;
        keepalive_timeout 4s;
    }
    server {
        location / { root /var/www; }
        location /v1/ {
            proxy_pass http://vllm;
            proxy_buffering off;
            proxy_read_timeout 600s;
            client_body_buffer_size 1m;
        }
    }
}
`, `http {
    proxy_buffering off;
    proxy_read_timeout 1h;
    upstream backend { random two least_conn; zone backend 64k; server 10.0.0.1:8000; server 10.0.0.2:8000 fail_timeout=10s; keepalive 8; keepalive_timeout 4s; }
    server {
        client_max_body_size 0;
        client_body_buffer_size 1m;
        location ~ ^/api/v1/chat/completions { proxy_pass http://backend; }
    }
}
`, `http {
    server {
        client_max_body_size 100m; client_body_buffer_size 256k; proxy_buffering off; proxy_read_timeout 10m;
        location / { proxy_pass http://sglang/; }
    }
    upstream sglang { ip_hash; zone s 64k; server a:30000 fail_timeout=10s; server b:30000; keepalive 4; keepalive_timeout 3s; }
}
`}

func lintText(t *testing.T, text string, names ...string) (out []advice.Finding) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nginx.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := Lint(path, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out {
		rules.See(f)
	}
	return out
}

func TestLint(t *testing.T) {
	for i, text := range good {
		if got := lintText(t, text); len(got) != 0 {
			t.Errorf("configuration %d is good, yet: %v", i, got)
		}
	}
	replace := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	for _, c := range []struct {
		rule, says string
		edit       func(string) string
	}{
		{"fail-timeout", "fail_timeout is 2h46m40s", replace("fail_timeout=10s", "fail_timeout=10000s")},
		{"buffering", "proxy_buffering is on", replace("proxy_buffering off", "proxy_buffering on")},
		{"buffering", "proxy_buffering is on", replace("proxy_buffering off;", "")},
		{"read-timeout", "after 60 s without a byte", replace("proxy_read_timeout 600s;", "", "proxy_read_timeout 1h;", "", "proxy_read_timeout 10m;", "")},
		{"read-timeout", "proxy_read_timeout is 1m0s", replace("proxy_read_timeout 600s;", "proxy_read_timeout 60;", "proxy_read_timeout 1h;", "proxy_read_timeout 1m;", "proxy_read_timeout 10m;", "proxy_read_timeout 60s;")},
		{"max-body", "nginx refuses bodies of more than 1 MB", replace("client_max_body_size 50m;", "", "client_max_body_size 0;", "", "client_max_body_size 100m;", "")},
		{"body-buffer", "goes through a file", replace("client_body_buffer_size 1m;", "", "client_body_buffer_size 256k;", "")},
		{"keepalive", "kept for 1m0s", replace("keepalive_timeout 4s;", "", "keepalive_timeout 3s;", "")},
		{"keepalive", "from nginx 1.29.7 on, idle connections are kept for 1m0s", replace("keepalive 16;", "", "keepalive 8;", "", "keepalive 4;", "", "keepalive_timeout 4s;", "", "keepalive_timeout 3s;", "")},
		{"keepalive", "kept for 5s", replace("keepalive_timeout 4s;", "keepalive_timeout 5s;", "keepalive_timeout 3s;", "keepalive_timeout 5;")},
		{"zone", "each worker process counts", replace("zone vllm 64k;", "", "zone backend 64k;", "", "zone s 64k;", "")},
		{"balance", "round robin over engines", replace("least_conn;", "", "random two ", "", "ip_hash;", "")},
		{"non-idempotent", "sent to another one as well", replace("proxy_pass", "proxy_next_upstream error non_idempotent; proxy_pass")},
		{"gzip", "holds their chunks back", replace("http {\n", "http {\n    gzip_types text/plain text/event-stream;\n")},
	} {
		for i, text := range good {
			if c.rule == "balance" && i == 1 {
				text = strings.Replace(text, "random two least_conn;", "", 1)
			}
			got := lintText(t, c.edit(text))
			if len(got) != 1 || got[0].Rule != c.rule || got[0].Level != advice.Warning || got[0].Line == 0 || got[0].Remedy == "" || !strings.Contains(got[0].String(), c.says) {
				t.Errorf("%s in configuration %d: %v, want one with %q", c.rule, i, got, c.says)
			}
		}
	}
	other := "http { upstream app { server 10.0.0.1:80 fail_timeout=10000s; } server { location / { proxy_pass http://app; } } }"
	if got := lintText(t, other); len(got) != 0 {
		t.Errorf("no engine, yet: %v", got)
	}
	if got := lintText(t, other, "app"); len(got) != 6 {
		t.Errorf("named: %v", got)
	}
}

// TestLintSparesHealthChecks: no prompts and no streams pass there.
func TestLintSparesHealthChecks(t *testing.T) {
	const text = `http {
    client_max_body_size 50m;
    upstream vllm { least_conn; zone vllm 64k; server 10.0.0.1:8000; server 10.0.0.2:8000; keepalive_timeout 4s; }
    server {
        location /v1/ { proxy_pass http://vllm; proxy_buffering off; proxy_read_timeout 600s; client_body_buffer_size 1m; }
        location %s { proxy_pass http://vllm; }
    }
}
`
	for path, warned := range map[string]bool{"= /health": false, "/metrics": false, "^~ /ping": false, "/healthy": true, "/": true} {
		if got := lintText(t, fmt.Sprintf(text, path)); len(got) > 0 != warned {
			t.Errorf("location %s: %v", path, got)
		}
	}
}
