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
	"pointsman/test/rig"
)

// TestAttach pastes what `render --attach` prints into a configuration that
// exists, in each form that the proxy has. Requests are decided, the user's own
// rules hold, and other traffic is left alone.
func TestAttach(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		for _, form := range r.Lay(&rig.Site{}).Forms() {
			t.Run(form, func(t *testing.T) {
				t.Parallel()
				attach(t, r, form)
			})
		}
	})
}

func attach(t *testing.T, r rig.Release, form string) {
	o := rig.EngineOptions{Models: []string{rig.Model, "second-model"}}
	e := rig.Attached{L1: rig.StartEngine(t, "l1", o), L2: rig.StartEngine(t, "l2", o), Q1: rig.StartEngine(t, "q1", o)}
	pools, second := fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests, replicas: %s}\n", rig.Pool, rig.Model, rig.ReplicasYAML(e.L1, e.L2)), false
	switch form {
	case "several-pools":
		second = true
		pools += fmt.Sprintf("  second: {models: [second-model], replicas: %s}\n", rig.ReplicasYAML(e.Q1))
	case "own-backends":
		second = true
		pools = fmt.Sprintf("pools:\n  %s: {models: [%s], policy: least_requests}\n  second: {models: [second-model]}\n", rig.Pool, rig.Model)
	}
	s := rig.NewSite(t, r, pools)
	s.Agent.Start()
	s.Proxy.Attach(form, rig.StartWebsite(t), e)
	s.Proxy.AwaitAgent()
	client := rig.NewClient(4, true, false)
	defer client.CloseIdleConnections()
	rig.Eventually(t, 5*time.Second, "the agent has the replicas", func() (bool, string) {
		p := s.Agent.Pool(rig.Pool)
		return len(p.Replicas) == 2, fmt.Sprintf("%+v", p)
	})
	before, asked := s.Agent.Settled(rig.Pool), s.Proxy.Questions(s.Agent.Metrics())
	const n = 40
	by := s.Serve(client, n)
	if by["l1"] == 0 || by["l2"] == 0 || by["q1"] != 0 {
		t.Errorf("served by %v", by)
	}
	p := s.Agent.Settled(rig.Pool)
	if p.Decisions-before.Decisions != n || p.Outcomes["served"]-before.Outcomes["served"] != n || p.FellOpen != 0 {
		t.Errorf("%d requests: %+v, before %+v", n, p, before)
	}
	more := 0
	for _, size := range []int{300, 300_000, 2_000_000} {
		c := rig.Call{Body: rig.Chat(rig.Model, size, 2, true, 3), Chunked: size > 1000}
		if err := c.Check(c.Do(client, s.Front)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		more++
		if !second {
			continue
		}
		c = rig.Call{Body: rig.Chat("second-model", size, 3, true, 0), Chunked: size > 1000}
		if a := c.Do(client, s.Front); c.Check(a) != nil || a.Engine != "q1" {
			t.Errorf("second model, %d bytes: %v, by %q", size, c.Check(a), a.Engine)
		}
		more++
	}
	if second {
		if p := s.Agent.Settled("second"); p.Decisions != 3 || p.Outcomes["served"] != 3 {
			t.Errorf("second pool: %+v", p)
		}
	}
	for _, c := range []rig.Call{{Method: "GET", Path: "/static/x"}, {Path: "/upload", Body: []byte("not for us")}, {Method: "GET", Path: "/"}} {
		if a := c.Do(client, s.Front); a.Err != nil || !strings.HasPrefix(string(a.Body), "the site: ") {
			t.Errorf("%s: %d %q %v", c.Path, a.Status, a.Body, a.Err)
		}
	}
	if got := s.Proxy.Questions(s.Agent.Metrics()) - asked; got != n+more {
		t.Errorf("%d questions, want %d: other traffic is asked about too", got, n+more)
	}
	s.Untroubled()
	if s.Can.Runtime {
		haproxyAttached(s.HAProxy())
	} else {
		nginxAttached(s.Nginx(), n)
	}

	// Without the agent all goes on.
	s.Agent.Kill()
	s.Serve(client, 10)
	s.Agent.Start()
	rig.Eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
		s.Serve(client, 2)
		p := s.Agent.Pool(rig.Pool)
		return p.Decisions >= 4, fmt.Sprintf("%+v", p)
	})
}

// checkConfig runs `pointsman check` on a user's configuration.
func checkConfig(s *rig.Site, args ...string) (string, error) {
	cmd := exec.Command(rig.Binary, append([]string{"check", "--config", s.Config()}, args...)...)
	cmd.Env = append(os.Environ(), "PATH=/nowhere") // whose proxy it is does not matter here
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// haproxyAttached has check find nothing missing.
func haproxyAttached(h *rig.HAProxy) {
	h.T.Helper()
	if out, err := checkConfig(h.Site, "--version", h.Version, "--haproxy-config", filepath.Join(h.Proc.Dir, "haproxy.cfg")); err != nil {
		h.T.Errorf("check: %v\n%s", err, out)
	}
}

// nginxAttached sees that the user's access rules hold and that their own log has
// gone on, of served requests at least. check finds nothing missing, unless
// something is.
func nginxAttached(n *rig.Nginx, served int) {
	t := n.T
	t.Helper()
	for path, method := range map[string]string{"/private/v1/chat/completions": "POST", "/v1/chat/completions": "PUT"} {
		if a := (rig.Call{Method: method, Path: path, Body: rig.Small(false).Body}).Do(http.DefaultClient, n.Front); a.Status != http.StatusForbidden {
			t.Errorf("%s %s: %d", method, path, a.Status)
		}
	}
	log, err := os.ReadFile(filepath.Join(n.Proc.Dir, "access.log"))
	if err != nil || strings.Count(string(log), "POST /v1/chat/completions HTTP/1.1\" 200") < served || !strings.Contains(string(log), "GET /static/x ") {
		t.Errorf("%v, their own log:\n%s", err, log)
	}
	conf := filepath.Join(n.Proc.Dir, "nginx.conf")
	if out, err := checkConfig(n.Site, "--nginx-config", conf); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	n.Proc.Write(proxies.File{Name: "nginx.conf", Text: strings.Replace(n.Conf, "client_max_body_size 50m;", "access_log off;", 1)})
	if out, err := checkConfig(n.Site, "--nginx-config", conf); err == nil || !strings.Contains(out, "this access_log replaces") || !strings.Contains(out, "no client_max_body_size") {
		t.Errorf("check: %v\n%s", err, out)
	}
	n.Proc.Write(proxies.File{Name: "nginx.conf", Text: n.Conf})
}

// TestCheck has check try what is rendered with the proxy in the path.
func TestCheck(t *testing.T) {
	for name, r := range map[string]rig.Release{"haproxy": rig.HAProxies(t)[0], "nginx": rig.Nginxes(t)[0]} {
		t.Run(name, func(t *testing.T) {
			s, _ := rig.Replicas(t, r, 2, "round_robin")
			cmd := exec.Command(rig.Binary, "check", "--config", s.Config())
			cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), name) || !strings.Contains(string(out), "accepts the rendered configuration") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
