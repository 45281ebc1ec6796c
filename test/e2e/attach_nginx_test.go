package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// nginxShapes say how configurations are driven of which the zero shape does
// not tell it.
var nginxShapes = map[string]shape{
	"api-keys":       {calls: with("Authorization", "Bearer sk-test")},
	"basic-auth":     {calls: []rig.Call{{Header: map[string]string{"Authorization": "Basic dGVzdHM6c2VjcmV0"}}, {Path: "/open/v1/chat/completions"}}},
	"certbot":        {calls: with("Authorization", "Basic YW5uOng="), secure: "http/1.1"},
	"openwebui":      {calls: []rig.Call{{Path: "/openai/chat/completions", Header: map[string]string{"Host": "chat.example.com"}}}},
	"gateway":        {calls: to("/gpt-oss-20b/v1/chat/completions", "/qwen3-30b/v1/chat/completions"), secure: "http/1.1"},
	"headers":        {calls: to("/api/v1/chat/completions")},
	"one-line":       {calls: to("/v1/chat/completions", "/v2/v1/chat/completions")},
	"paths":          {calls: to("/llm/v1/chat/completions", "/openai/v1/chat/completions", "/chat", "/old/chat/completions")},
	"resolver":       {backends: []string{"127.0.0.1:@e1@"}},
	"tls-h2":         {secure: "h2"},
	"two-servers":    {fronts: []string{"@front@", "@front2@", "@front3@"}},
	"vllm-docs":      {backends: []string{"backend"}},
	"websocket-cors": {calls: to("/ollama/v1/chat/completions"), backends: []string{"ollama"}},
}

// TestAttachNginx attaches to an nginx that serves, by the command alone: every
// request is then decided and its outcome reported, none fails when the agent dies,
// and detaching restores every byte.
func TestAttachNginx(t *testing.T) {
	list := rig.Nginxes(t)
	for i, name := range corpusNames(t, "nginx") {
		for _, r := range rotate(list, i) {
			t.Run(r.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				newNginxUser(t, r, name, nil).drive()
			})
		}
	}
}

// newNginxUser is somebody whose nginx runs with one of the configurations. edit, which
// may be nil, changes it before that.
func newNginxUser(t *testing.T, r rig.Release, name string, edit func(s *rig.Site, conf string) string) *user {
	anywhere := name == "headers" || name == "one-line"
	s := rig.NewSite(t, r, "")
	n := s.Nginx()
	sh := nginxShapes[name]
	dir := t.TempDir()
	cert := certificate(t, dir)
	e1, e2 := atPort(t, "e1", "8000", cert, anywhere), atPort(t, "e2", "30000", cert, anywhere)
	e3, e4 := atPort(t, "e3", "8443", cert, anywhere), atPort(t, "e4", "8444", cert, anywhere)
	blanks := map[string]string{"@front@": s.Front, "@front2@": s.Front2, "@front3@": rig.FreeAddress(t)}
	fill := strings.NewReplacer("@front@", s.Front, "@front2@", s.Front2, "@front3@", blanks["@front3@"], "@web@", port(rig.StartWebsite(t)),
		"127.0.0.1:@e1@", e1, "localhost:@e1@", e1, "127.0.0.1:@e2@", e2, "localhost:@t1@", e3, "127.0.0.1:@t2@", e4,
		"@dir@/", "", "user www-data;", "")
	layCorpus(t, filepath.Join(corpus, "nginx", name)+"/.", dir, func(text string) string {
		if strings.Contains(text, "http {") || strings.Contains(text, "http{") {
			if !strings.Contains(text, "\npid ") {
				text = "pid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n" + text
			}
		}
		text = fill.Replace(text)
		if edit != nil && strings.Contains(text, "http {") {
			text = edit(s, text)
		}
		return text
	})
	n.Proc = proxies.StartNginxIn(t, r.Bin, dir)
	fronts := []string{s.Front}
	if len(sh.fronts) > 0 {
		fronts = nil
	}
	for _, blank := range sh.fronts {
		fronts = append(fronts, blanks[blank])
	}
	backends := sh.backends
	sh.backends = nil
	for _, b := range backends {
		sh.backends = append(sh.backends, fill.Replace(b))
	}
	return &user{Site: s, shape: sh, fronts: fronts, own: filepath.Join(dir, "nginx.conf"), flag: "--nginx-config", reload: n.Reload, client: sh.newClient(),
		complete: func(made string) string {
			usual := regexp.MustCompile(`listen:\n  nginx: unix:///run/pointsman/nginx.sock\n  spoe: off.*\n`).FindString(made)
			if usual == "" {
				t.Fatalf("attach made\n%s", made)
			}
			return strings.Replace(made, usual, fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\nnginx: {processing_timeout: 5s}\n", n.Listen(), s.Feed, s.Agent.Admin), 1)
		}}
}

// port is that of an address.
func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// awaitAsking waits until no worker serves any more that does not ask, after a
// reload: all of n requests are decided.
func awaitAsking(s *rig.Site, pool string, send func(), n int) {
	s.T.Helper()
	rig.Eventually(s.T, 10*time.Second, "only new workers serve", func() (bool, string) {
		before := s.Agent.Settled(pool)
		send()
		p := s.Agent.Settled(pool)
		return p.Decisions-before.Decisions == n, fmt.Sprintf("%+v", p)
	})
}
