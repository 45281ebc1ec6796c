package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// users is the configuration of somebody who serves a web site and, in the form
// that takes their own backends, an LLM. Its sections are marked where the
// printed lines are to be pasted.
const users = `global
    maxconn 1000
    stats socket %[1]s mode 660 level admin expose-fd listeners
    #paste global

defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    #paste defaults

frontend web
    bind %[2]s
    http-request set-header X-Forwarded-Proto http
    acl is_static path_beg /static
    use_backend site if is_static
    #paste frontend
    default_backend site

backend site
    server s1 %[3]s
`

// head is the line before each snippet that render prints.
var head = regexp.MustCompile(`(?m)^# ===== paste into your section (.+?)( \(optional\))? =====\n`)

// paste puts the snippets of printed into cfg, as the heads say.
func paste(t *testing.T, cfg, printed string, optional bool) string {
	t.Helper()
	heads := head.FindAllStringSubmatchIndex(printed, -1)
	if len(heads) == 0 {
		t.Fatalf("nothing to paste:\n%s", printed)
	}
	for i, at := range heads {
		end := len(printed)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		if at[4] >= 0 && !optional {
			continue
		}
		mark := "    #paste " + printed[at[2]:at[3]] + "\n"
		if !strings.Contains(cfg, mark) {
			t.Fatalf("no section %q to paste into", printed[at[2]:at[3]])
		}
		cfg = strings.Replace(cfg, mark, printed[at[1]:end]+"\n"+mark, 1)
	}
	return cfg
}

// TestAttach pastes what `render --attach` prints into a configuration that
// exists, in both forms: the replicas in our own backend file, and in backends
// of the user's. Requests are decided, and other traffic is left alone.
func TestAttach(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		forms := []string{"one pool", "several pools", "own backends"}
		if bin.Version == "3.2" {
			forms = append(forms, "live feed") // its log-profile is what makes it optional
		}
		for _, form := range forms {
			t.Run(strings.ReplaceAll(form, " ", "-"), func(t *testing.T) {
				t.Parallel()
				o := fakevllm.Options{Models: []string{model, "second-model"}}
				l1, l2, q1 := startEngine(t, "l1", o), startEngine(t, "l2", o), startEngine(t, "q1", o)
				site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, "the site: ", r.Method, " ", r.URL.Path)
				}))
				t.Cleanup(site.Close)

				pools := fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests, replicas: %s}\n", pool, model, replicasYAML(l1, l2))
				var backends string
				switch form {
				case "several pools":
					pools += fmt.Sprintf("  second: {models: [second-model], replicas: %s}\n", replicasYAML(q1))
				case "own backends":
					pools = fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests}\n  second: {models: [second-model]}\n", pool, model)
					backends = fmt.Sprintf(`
backend %s
    balance roundrobin
    server l1 %s check
    server l2 %s check
    #paste backend %[1]s

backend second
    server q1 %[4]s
    #paste backend second
`, pool, l1.address, l2.address, q1.address)
				}
				s := newSite(t, bin, pools)
				s.agent.start()
				files, printed := s.render("--attach")
				cfg := fmt.Sprintf(users, s.runtime, s.front, strings.TrimPrefix(site.URL, "http://")) + backends
				cfg = paste(t, cfg, printed, form == "live feed")
				var extra []proxies.File
				for name, text := range files {
					extra = append(extra, proxies.File{Name: name, Text: text})
				}
				s.proxy = proxies.Start(t, bin, cfg, extra...)
				s.awaitAgent()

				client := newClient(4, true, false)
				defer client.CloseIdleConnections()
				eventually(t, 5*time.Second, "the agent has the replicas", func() (bool, string) {
					p := s.agent.pool(pool)
					return len(p.Replicas) == 2, fmt.Sprintf("%+v", p)
				})
				before := s.agent.pool(pool).Decisions
				const n = 40
				by := s.serve(client, n)
				if by["l1"] == 0 || by["l2"] == 0 || by["q1"] != 0 {
					t.Errorf("served by %v", by)
				}
				p := s.agent.settled(pool)
				if p.Decisions-before != n || p.Outcomes["served"] != n || p.FellOpen != 0 {
					t.Errorf("%d requests: %+v", n, p)
				}
				if form == "several pools" || form == "own backends" {
					for _, size := range []int{300, 300_000} {
						c := call{body: chat("second-model", size, 3, true, 0), chunked: size > 1000}
						if a := c.do(client, s.front); c.check(a) != nil || a.engine != "q1" {
							t.Errorf("second model, %d bytes: %v, by %q", size, c.check(a), a.engine)
						}
					}
					if p := s.agent.settled("second"); p.Decisions != 2 || p.Outcomes["served"] != 2 {
						t.Errorf("second pool: %+v", p)
					}
				}
				for _, c := range []call{{method: "GET", path: "/static/x"}, {path: "/upload", body: []byte("not for us")}, {method: "GET", path: "/"}} {
					if a := c.do(client, s.front); a.err != nil || !strings.HasPrefix(string(a.body), "the site: ") {
						t.Errorf("%s: %d %q %v", c.path, a.status, a.body, a.err)
					}
				}
				if m := s.agent.metrics(); m["pointsman_spoe_messages_total"] > n+2 {
					t.Errorf("%v questions: other traffic is asked about too", m["pointsman_spoe_messages_total"])
				}
				// Without the agent all goes on.
				s.agent.kill()
				s.serve(client, 10)
				s.agent.start()
				eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
					s.serve(client, 2)
					p := s.agent.pool(pool)
					return p.Decisions >= 4, fmt.Sprintf("%+v", p)
				})
			})
		}
	})
}
