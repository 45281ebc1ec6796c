package rig

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// Site is an installation: an agent, a proxy and the engines behind it.
type Site struct {
	Release
	T      testing.TB
	Dir    string // of the agent's configuration and sockets
	Agent  *Agent
	Proxy  Proxy
	Front  string // host:port of the proxy
	Front2 string // the same, for HTTP/2 in plain text
	Feed   string // host:port of the agent's feed
}

// NewSite lays out a site whose agent has the given pools: the YAML after what
// every site has in common. more are further lines before them. Nothing is
// started yet.
func NewSite(t testing.TB, r Release, pools string, more ...string) *Site {
	t.Helper()
	// Paths of sockets are short: the folders of t.TempDir may not be.
	dir, err := os.MkdirTemp("", "pm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := NewFront(t, r, dir)
	admin := FreeAddress(t)
	s.Configure(fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\n%s\n", s.Proxy.Listen(), s.Feed, admin, s.Proxy.Section()) +
		strings.Join(more, "\n") + "\n" + pools)
	s.Agent = NewAgent(t, s.Config(), admin)
	return s
}

// NewFront is a site without an agent of its own yet.
func NewFront(t testing.TB, r Release, dir string) *Site {
	s := &Site{Release: r, T: t, Dir: dir, Front: FreeAddress(t), Front2: FreeAddress(t), Feed: FreeAddress(t)}
	s.Proxy = r.Lay(s)
	return s
}

// FreeAddress is an address of the loopback that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", proxies.FreePort(t))
}

// Replicas is a site with one pool of n equal replicas, not started. Its policy
// spreads equal requests, which one that looks at caches would not.
func Replicas(t testing.TB, r Release, n int, policy string, more ...string) (*Site, []*Engine) {
	t.Helper()
	var engines []*Engine
	for i := range n {
		engines = append(engines, StartEngine(t, fmt.Sprintf("r%d", i+1), EngineOptions{Models: []string{Model}}))
	}
	return NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: %s, max_requests: 0, replicas: %s}}\n",
		Pool, Model, policy, ReplicasYAML(engines...)), more...), engines
}

// ReplicasYAML lists engines as the replicas of a pool, in YAML's flow form.
func ReplicasYAML(engines ...*Engine) string {
	var parts []string
	for _, e := range engines {
		parts = append(parts, fmt.Sprintf("%s: {address: %q}", e.Name, e.Address))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Config is the path of the agent's configuration.
func (s *Site) Config() string { return filepath.Join(s.Dir, "pointsman.yaml") }

// Configure writes the agent's configuration.
func (s *Site) Configure(text string) {
	s.T.Helper()
	if err := os.WriteFile(s.Config(), []byte(text), 0o644); err != nil {
		s.T.Fatal(err)
	}
}

// Edit replaces a part of the agent's configuration.
func (s *Site) Edit(old, replacement string) {
	s.T.Helper()
	b, err := os.ReadFile(s.Config())
	if err != nil {
		s.T.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		s.T.Fatalf("the configuration has no %q:\n%s", old, b)
	}
	s.Configure(strings.Replace(string(b), old, replacement, 1))
}

// processingTimeout is in the section of each proxy.
const processingTimeout = ", processing_timeout: 1s"

// Patient lets the proxy wait for decisions as long as a starved machine may need,
// for tests in which every request must have one.
func (s *Site) Patient() { s.Edit(processingTimeout, ", processing_timeout: 15s") }

// Unhurried leaves the time that a question may take to what admission needs.
func (s *Site) Unhurried() { s.Edit(processingTimeout, "") }

// ReloadAgent has the agent read its configuration anew, and waits for that.
func (s *Site) ReloadAgent() {
	s.T.Helper()
	const done = "msg=reloaded"
	before := strings.Count(s.Agent.Log.String(), done)
	s.Agent.Signal(syscall.SIGHUP)
	Eventually(s.T, 5*time.Second, "the agent has reloaded", func() (bool, string) {
		log := s.Agent.Log.String()
		return strings.Count(log, done) > before, log
	})
}

// renderWith runs `pointsman render` with args, and returns the files that it
// writes and what it prints.
func (s *Site) renderWith(args ...string) (files map[string]string, printed string) {
	s.T.Helper()
	out := s.T.TempDir()
	cmd := exec.Command(Binary, append([]string{"render", args[0], "--config", s.Config(), "--out", out}, args[1:]...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.T.Fatalf("render: %v\n%s", err, stderr.String())
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		s.T.Fatal(err)
	}
	files = map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			s.T.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files, stdout.String()
}

// Start starts agent and proxy and waits until requests are decided.
func (s *Site) Start() {
	s.T.Helper()
	s.Agent.Start()
	s.Proxy.Start()
	s.Proxy.AwaitAgent()
}

// Serve sends n small requests one by one and returns who served them. Each has
// to succeed.
func (s *Site) Serve(client *http.Client, n int) map[string]int {
	s.T.Helper()
	by := map[string]int{}
	for i := range n {
		c := Small(i%2 == 0)
		a := c.Do(client, s.Front)
		if err := c.Check(a); err != nil {
			s.T.Errorf("request %d: %v", i, err)
		}
		by[a.Engine]++
	}
	return by
}

// AwaitReservations waits until the pool has n reservations.
func (s *Site) AwaitReservations(n int) {
	s.T.Helper()
	Eventually(s.T, 5*time.Second, fmt.Sprint("requests in flight: ", n), func() (bool, string) {
		p := s.Agent.Pool(Pool)
		return p.Reservations == n, fmt.Sprintf("%+v", p)
	})
}

// AwaitState waits until the agent has the replica in one of the states.
func (s *Site) AwaitState(replica string, most time.Duration, states ...string) {
	s.T.Helper()
	Eventually(s.T, most, fmt.Sprintf("%s is %s", replica, strings.Join(states, " or ")), func() (bool, string) {
		p := s.Agent.Pool(Pool)
		for _, state := range states {
			if p.Replica(replica).State == state {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v of %v", p.Replica(replica), p.Outcomes)
	})
}

// Returns waits until the replica serves again.
func (s *Site) Returns(client *http.Client, replica string) {
	s.T.Helper()
	Eventually(s.T, 10*time.Second, replica+" serves again", func() (bool, string) {
		by := s.Serve(client, 6)
		return by[replica] > 0, fmt.Sprint(by)
	})
}

// Decides waits until the agent has decided n requests more, and knows the
// outcome of as many.
func (s *Site) Decides(n int) {
	s.T.Helper()
	before := s.Agent.Pool(Pool)
	Eventually(s.T, 20*time.Second, fmt.Sprint("decisions and their outcomes: ", n), func() (bool, string) {
		p := s.Agent.Pool(Pool)
		return p.Decisions >= before.Decisions+n && p.Outcomes["served"] >= before.Outcomes["served"]+n, fmt.Sprintf("%+v", p)
	})
}

// Untroubled checks that no counter of trouble has moved but those excused.
func (s *Site) Untroubled(excused ...string) {
	s.T.Helper()
	s.Agent.stayZero(append([]string{"pointsman_feed_malformed_total", "pointsman_reservations_expired_total", "pointsman_reservations_replaced_total"}, s.Proxy.Troubles()...), excused...)
}

// Idle checks that nothing is left on any replica.
func (s *Site) Idle(p PoolStatus) {
	s.T.Helper()
	for _, r := range p.Replicas {
		if r.InFlight != 0 || r.Waiting != 0 || r.Tokens != 0 {
			s.T.Errorf("at the end: %+v", r)
		}
	}
}

// Count is a counter of the pool.
func (s *Site) Count(name string) int {
	s.T.Helper()
	v, ok := s.Agent.Metrics()[fmt.Sprintf("pointsman_%s{pool=%q}", name, Pool)]
	if !ok {
		s.T.Errorf("no metric pointsman_%s", name)
	}
	return int(v)
}
