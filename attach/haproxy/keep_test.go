package haproxy

import (
	"os"
	"strings"
	"testing"
)

// TestKeeps keeps connections to servers of the user's only where nothing of theirs says
// otherwise, and a note gives the reason where it does.
func TestKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		old, changed string // in the configuration
		why          string // "" = kept
	}{
		"as it is":             {"", "", ""},
		"their downinter":      {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000 check downinter 3s", ""},
		"checked by default":   {"    server gpu1 10.0.0.1:8000 check", "    default-server check\n    server gpu1 10.0.0.1:8000", ""},
		"checked by defaults":  {"\nfrontend llm", "    default-server check\n\nfrontend llm", ""},
		"always, as here":      {"balance roundrobin", "balance roundrobin\n    http-reuse always", ""},
		"another reuse":        {"balance roundrobin", "balance roundrobin\n    http-reuse never", "http-reuse never"},
		"reuse in defaults":    {"\nfrontend llm", "    http-reuse safe\n\nfrontend llm", "http-reuse safe"},
		"new connections":      {"\nfrontend llm", "    option http-server-close\n\nfrontend llm", "option http-server-close"},
		"of the frontend":      {"default_backend vllm", "option httpclose\n    default_backend vllm", "option httpclose"},
		"their retries":        {"balance roundrobin", "balance roundrobin\n    retries 5", "retries 5"},
		"their retry-on":       {"\nfrontend llm", "    retry-on conn-failure 503\n\nfrontend llm", "retry-on conn-failure 503"},
		"rules end early":      {"balance roundrobin", "balance roundrobin\n    http-request allow if { path /x }", "http-request allow"},
		"one is unchecked":     {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000", "servers without check"},
		"one is, by its line":  {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000 check no-check", "servers without check"},
		"TLS":                  {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000 check ssl verify none", "ssl"},
		"their observe":        {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000 check observe layer7", "observe"},
		"the client's address": {"gpu1 10.0.0.1:8000 check", "gpu1 10.0.0.1:8000 check send-proxy-v2", "send-proxy-v2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := place(t, "plain.cfg", dir)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.old) {
				t.Fatalf("no %q in\n%s", c.old, text)
			}
			put(t, path, strings.Replace(string(text), c.old, c.changed, 1))
			r, err := Attach(options(path, dir, "3.2"))
			if err != nil {
				t.Fatal(err)
			}
			patch, kept := r.Patch(), c.why == ""
			for _, line := range []string{"+    default-server tcp-ut 10s", "+    retry-on conn-failure empty-response", "+    http-request set-var(txn.pm.own)"} {
				if strings.Contains(patch, line) != kept {
					t.Errorf("%q is there: %v\n%s", line, !kept, patch)
				}
			}
			if strings.Contains(patch, "+    option http-server-close") == kept {
				t.Errorf("a new connection for each request: %v\n%s", kept, patch)
			}
			notes := strings.Join(r.Notes, "\n")
			if strings.Contains(notes, "gets a new connection, because of") == kept || !strings.Contains(notes, c.why) {
				t.Errorf("notes: %s", notes)
			}
			if want := kept && name != "their downinter"; strings.Contains(patch, "+    default-server downinter") != want {
				t.Errorf("downinter:\n%s", patch)
			}
		})
	}
}
