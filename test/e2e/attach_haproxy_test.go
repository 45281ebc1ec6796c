package e2e

import (
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// haproxyShapes say how configurations are driven of which the zero shape does
// not tell it.
var haproxyShapes = map[string]shape{
	"acls.cfg":           {calls: with("Host", "api.example.com")},
	"compose.cfg":        {fronts: []string{"@front@", "@front2@"}, backends: []string{"vllm"}},
	"gateway.cfg":        {calls: to("/llama/v1/chat/completions", "/mistral/v1/chat/completions")},
	"h2.cfg":             {fronts: []string{"@front2@"}},
	"host-map.cfg":       {calls: with("Host", "ai.example.com")},
	"ingress.cfg":        {calls: with("Host", "models.example.com")},
	"keys.cfg":           {calls: with("Authorization", "Bearer sk-tests")},
	"own-log-format.cfg": {fronts: []string{"@front@", "@front2@", "@front3@", "@front4@"}},
	"passthrough.cfg":    {calls: with("Host", "ai.example.com"), secure: "http/1.1"},
	"peers.cfg":          {calls: with("Authorization", "Basic YW5uOnNlY3JldA==")},
	"pfsense.cfg":        {calls: with("Host", "llm.home.arpa")},
	"branches.cfg":       {calls: []rig.Call{{Header: map[string]string{"Accept": "text/event-stream"}}, {Path: "/openai/v1/chat/completions"}}},
	"tls.cfg":            {secure: "h2"},
	"two-frontends.cfg":  {calls: with("Authorization", "Bearer x"), fronts: []string{"@front@", "@front2@"}},
	"two-pools.cfg": {calls: []rig.Call{{Header: map[string]string{"Host": "llama.example.com"}},
		{Path: "/qwen/v1/chat/completions"}}},
}

// inSoaks are configurations that only a soak drives live: they differ from others in what
// attach's own tests see too.
var inSoaks = map[string]bool{"fallback.cfg": true, "passthrough.cfg": true, "peers.cfg": true, "cloud": true, "nested": true, "openwebui": true}

// rotate gives each configuration one release, so that all are driven on one and
// each release has its share. A soak drives all on all.
func rotate(list []rig.Release, i int) []rig.Release {
	if rig.Soak {
		return list
	}
	return list[i%len(list) : i%len(list)+1]
}

// TestAttachHAProxy attaches to HAProxies that run already, by a reload. All
// requests are asked about and reported, none fails when the agent is killed,
// and detaching restores the configuration to the byte.
func TestAttachHAProxy(t *testing.T) {
	list := rig.HAProxies(t)
	for i, name := range corpusNames(t, "haproxy") {
		for _, r := range rotate(list, i) {
			t.Run(r.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				newHAProxyUser(t, r, name).drive()
			})
		}
	}
}

// privileged matches what only root may have HAProxy do, or names accounts that a
// machine may not have.
var privileged = regexp.MustCompile(`(?m)^\s*(chroot|uid|gid)\s.*\n|^\s*(user|group)\s+\S+[ \t]*\n| group proxy\b`)

// newHAProxyUser is somebody whose HAProxy runs with one of the configurations.
func newHAProxyUser(t *testing.T, r rig.Release, name string) *user {
	s := rig.NewSite(t, r, "")
	h := s.HAProxy()
	sh := haproxyShapes[name]
	dir := t.TempDir()
	cert := certificate(t, s.Dir)
	hosts, errors := filepath.Join(s.Dir, "hosts.map"), filepath.Join(s.Dir, "503.http")
	for path, text := range map[string]string{hosts: "ai.example.com vllm\n", errors: "HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nbusy\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blanks := map[string]string{"@front@": s.Front, "@front2@": rig.FreeAddress(t), "@front3@": rig.FreeAddress(t), "@front4@": rig.FreeAddress(t)}
	fill := []string{"/run/haproxy/admin.sock", h.Runtime, "/run/haproxy.sock", h.Runtime, "ipv4@127.0.0.1:9999", rig.FreeAddress(t),
		"@cert@", cert, "@map@", hosts, "@errors@", errors, "*:@front", "127.0.0.1:@front", "check port 8000", "check",
		"ollama.internal:11434 check resolvers dns init-addr none", atPort(t, "o", "11434", cert, false) + " check", "  master-worker\n", ""}
	for blank, address := range blanks {
		fill = append(fill, blank, port(address))
	}
	agentAt := fmt.Sprintf("spoe: \"unix://%s\"", h.Spoe)
	jail := t.TempDir()
	replicas := map[string]string{}
	layCorpus(t, filepath.Join(corpus, "haproxy", name), dir, func(text string) string {
		_, err := osuser.Lookup("haproxy")
		if strings.Contains(text, "\tchroot ") && os.Getuid() == 0 && err == nil {
			// From within a folder that is HAProxy's root no socket is in reach.
			text = strings.Replace(text, "/var/lib/haproxy", jail, 1)
			agentAt = fmt.Sprintf("spoe: %q", rig.FreeAddress(t))
		} else {
			text = privileged.ReplaceAllString(text, "")
		}
		text = strings.NewReplacer(fill...).Replace(strings.NewReplacer("*:@front", "127.0.0.1:@front").Replace(text))
		return anyReplica.ReplaceAllStringFunc(text, func(address string) string {
			if replicas[address] == "" {
				replicas[address] = atPort(t, fmt.Sprint("e", len(replicas)), port(address), cert, false)
			}
			return replicas[address]
		})
	})
	fronts := []string{s.Front}
	if len(sh.fronts) > 0 {
		fronts = nil
	}
	for _, blank := range sh.fronts {
		fronts = append(fronts, blanks[blank])
	}
	h.Proc = proxies.StartIn(t, r.Bin, dir, name)
	patience := "5s"
	if r.Version == "2.6" {
		patience = "1s" // which a dead agent costs
	}
	return &user{Site: s, shape: sh, fronts: fronts, own: filepath.Join(dir, name), flag: "--haproxy-config", reload: h.Reload, client: sh.newClient(),
		complete: func(made string) string {
			lines := "  poll: 100ms\n  processing_timeout: " + patience + "\n"
			if !strings.Contains(made, "haproxy:\n") {
				made = "haproxy:\n" + made
			}
			return fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\n", agentAt, s.Feed, s.Agent.Admin) +
				strings.Replace(made, "haproxy:\n", "haproxy:\n"+lines, 1)
		}}
}
