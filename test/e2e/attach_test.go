package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// TestAttach pastes what `render --attach` prints into a configuration that
// exists, in each form that the proxy has. Requests are decided, the user's own
// rules hold, and other traffic is left alone.
func TestAttach(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		for _, form := range r.lay(&site{}).forms() {
			t.Run(form, func(t *testing.T) {
				t.Parallel()
				attach(t, r, form)
			})
		}
	})
}

func attach(t *testing.T, r release, form string) {
	o := engineOptions{Models: []string{model, "second-model"}}
	e := attached{startEngine(t, "l1", o), startEngine(t, "l2", o), startEngine(t, "q1", o)}
	pools, second := fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests, replicas: %s}\n", pool, model, replicasYAML(e.l1, e.l2)), false
	switch form {
	case "several-pools":
		second = true
		pools += fmt.Sprintf("  second: {models: [second-model], replicas: %s}\n", replicasYAML(e.q1))
	case "own-backends":
		second = true
		pools = fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests}\n  second: {models: [second-model]}\n", pool, model)
	}
	s := newSite(t, r, pools)
	s.agent.start()
	s.proxy.attach(form, startWebsite(t), e)
	s.proxy.awaitAgent()
	client := newClient(4, true, false)
	defer client.CloseIdleConnections()
	eventually(t, 5*time.Second, "the agent has the replicas", func() (bool, string) {
		p := s.agent.pool(pool)
		return len(p.Replicas) == 2, fmt.Sprintf("%+v", p)
	})
	before, asked := s.agent.settled(pool), s.proxy.questions(s.agent.metrics())
	const n = 40
	by := s.serve(client, n)
	if by["l1"] == 0 || by["l2"] == 0 || by["q1"] != 0 {
		t.Errorf("served by %v", by)
	}
	p := s.agent.settled(pool)
	if p.Decisions-before.Decisions != n || p.Outcomes["served"]-before.Outcomes["served"] != n || p.FellOpen != 0 {
		t.Errorf("%d requests: %+v, before %+v", n, p, before)
	}
	more := 0
	for _, size := range []int{300, 300_000, 2_000_000} {
		c := call{body: chat(model, size, 2, true, 3), chunked: size > 1000}
		if err := c.check(c.do(client, s.front)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		more++
		if !second {
			continue
		}
		c = call{body: chat("second-model", size, 3, true, 0), chunked: size > 1000}
		if a := c.do(client, s.front); c.check(a) != nil || a.engine != "q1" {
			t.Errorf("second model, %d bytes: %v, by %q", size, c.check(a), a.engine)
		}
		more++
	}
	if second {
		if p := s.agent.settled("second"); p.Decisions != 3 || p.Outcomes["served"] != 3 {
			t.Errorf("second pool: %+v", p)
		}
	}
	for _, c := range []call{{method: "GET", path: "/static/x"}, {path: "/upload", body: []byte("not for us")}, {method: "GET", path: "/"}} {
		if a := c.do(client, s.front); a.err != nil || !strings.HasPrefix(string(a.body), "the site: ") {
			t.Errorf("%s: %d %q %v", c.path, a.status, a.body, a.err)
		}
	}
	if got := s.proxy.questions(s.agent.metrics()) - asked; got != n+more {
		t.Errorf("%d questions, want %d: other traffic is asked about too", got, n+more)
	}
	s.untroubled()
	if s.can.runtime {
		s.haproxy().checkAttached()
	} else {
		s.nginx().checkAttached(n)
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
}

// check runs `pointsman check` on a user's configuration.
func (s *site) check(args ...string) (string, error) {
	cmd := exec.Command(binary, append([]string{"check", "--config", s.config()}, args...)...)
	cmd.Env = append(os.Environ(), "PATH=/nowhere") // whose proxy it is does not matter here
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkAttached has check find nothing missing.
func (h *haproxy) checkAttached() {
	h.t.Helper()
	if out, err := h.check("--version", h.version, "--haproxy-config", filepath.Join(h.proc.Dir, "haproxy.cfg")); err != nil {
		h.t.Errorf("check: %v\n%s", err, out)
	}
}

// checkAttached sees that the user's access rules hold and that their own log has
// gone on, of served requests at least. check finds nothing missing, unless
// something is.
func (n *nginx) checkAttached(served int) {
	t := n.t
	t.Helper()
	for path, method := range map[string]string{"/private/v1/chat/completions": "POST", "/v1/chat/completions": "PUT"} {
		if a := (call{method: method, path: path, body: small(false).body}).do(http.DefaultClient, n.front); a.status != http.StatusForbidden {
			t.Errorf("%s %s: %d", method, path, a.status)
		}
	}
	log, err := os.ReadFile(filepath.Join(n.proc.Dir, "access.log"))
	if err != nil || strings.Count(string(log), "POST /v1/chat/completions HTTP/1.1\" 200") < served || !strings.Contains(string(log), "GET /static/x ") {
		t.Errorf("%v, their own log:\n%s", err, log)
	}
	conf := filepath.Join(n.proc.Dir, "nginx.conf")
	if out, err := n.check("--nginx-config", conf); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	n.proc.Write(proxies.File{Name: "nginx.conf", Text: strings.Replace(n.conf, "client_max_body_size 50m;", "access_log off;", 1)})
	if out, err := n.check("--nginx-config", conf); err == nil || !strings.Contains(out, "this access_log replaces") || !strings.Contains(out, "no client_max_body_size") {
		t.Errorf("check: %v\n%s", err, out)
	}
	n.proc.Write(proxies.File{Name: "nginx.conf", Text: n.conf})
}

// TestCheck has check try what is rendered with the proxy in the path.
func TestCheck(t *testing.T) {
	for name, r := range map[string]release{"haproxy": haproxies(t)[0], "nginx": nginxes(t)[0]} {
		t.Run(name, func(t *testing.T) {
			s, _ := replicas(t, r, 2, "round_robin")
			cmd := exec.Command(binary, "check", "--config", s.config())
			cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), name) || !strings.Contains(string(out), "accepts the rendered configuration") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
