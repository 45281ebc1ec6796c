package e2e

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

// site is an installation: an agent, a proxy and the engines behind it.
type site struct {
	release
	t      testing.TB
	dir    string // of the agent's configuration and sockets
	agent  *agent
	proxy  proxy
	front  string // host:port of the proxy
	front2 string // the same, for HTTP/2 in plain text
	feed   string // host:port of the agent's feed
}

// newSite lays out a site whose agent has the given pools: the YAML after what
// every site has in common. more are further lines before them. Nothing is
// started yet.
func newSite(t testing.TB, r release, pools string, more ...string) *site {
	t.Helper()
	// Paths of sockets are short: the folders of t.TempDir may not be.
	dir, err := os.MkdirTemp("", "pm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := newFront(t, r, dir)
	admin := freeAddress(t)
	s.configure(fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\n%s\n", s.proxy.listen(), s.feed, admin, s.proxy.section()) +
		strings.Join(more, "\n") + "\n" + pools)
	s.agent = newAgent(t, s.config(), admin)
	return s
}

// newFront is a site without an agent of its own yet.
func newFront(t testing.TB, r release, dir string) *site {
	s := &site{release: r, t: t, dir: dir, front: freeAddress(t), front2: freeAddress(t), feed: freeAddress(t)}
	s.proxy = r.lay(s)
	return s
}

// freeAddress is an address of the loopback that nothing listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", proxies.FreePort(t))
}

// replicas is a site with one pool of n equal replicas, not started. Its policy
// spreads equal requests, which one that looks at caches would not.
func replicas(t testing.TB, r release, n int, policy string, more ...string) (*site, []*engine) {
	t.Helper()
	var engines []*engine
	for i := range n {
		engines = append(engines, startEngine(t, fmt.Sprintf("r%d", i+1), engineOptions{Models: []string{model}}))
	}
	return newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: %s, max_requests: 0, replicas: %s}}\n",
		pool, model, policy, replicasYAML(engines...)), more...), engines
}

// replicasYAML lists engines as the replicas of a pool, in YAML's flow form.
func replicasYAML(engines ...*engine) string {
	var parts []string
	for _, e := range engines {
		parts = append(parts, fmt.Sprintf("%s: {address: %q}", e.name, e.address))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (s *site) config() string { return filepath.Join(s.dir, "pointsman.yaml") }

// configure writes the agent's configuration.
func (s *site) configure(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config(), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// edit replaces a part of the agent's configuration.
func (s *site) edit(old, replacement string) {
	s.t.Helper()
	b, err := os.ReadFile(s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		s.t.Fatalf("the configuration has no %q:\n%s", old, b)
	}
	s.configure(strings.Replace(string(b), old, replacement, 1))
}

// processingTimeout is in the section of each proxy.
const processingTimeout = ", processing_timeout: 1s"

// patient lets the proxy wait for decisions as long as a starved machine may need,
// for tests in which every request must have one.
func (s *site) patient() { s.edit(processingTimeout, ", processing_timeout: 20s") }

// unhurried leaves the time that a question may take to what admission needs.
func (s *site) unhurried() { s.edit(processingTimeout, "") }

// reloadAgent has the agent read its configuration anew, and waits for that.
func (s *site) reloadAgent() {
	s.t.Helper()
	const done = "msg=reloaded"
	before := strings.Count(s.agent.log.String(), done)
	s.agent.signal(syscall.SIGHUP)
	eventually(s.t, 5*time.Second, "the agent has reloaded", func() (bool, string) {
		log := s.agent.log.String()
		return strings.Count(log, done) > before, log
	})
}

// renderWith runs `pointsman render` with args, and returns the files that it
// writes and what it prints.
func (s *site) renderWith(args ...string) (files map[string]string, printed string) {
	s.t.Helper()
	out := s.t.TempDir()
	cmd := exec.Command(binary, append([]string{"render", args[0], "--config", s.config(), "--out", out}, args[1:]...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("render: %v\n%s", err, stderr.String())
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		s.t.Fatal(err)
	}
	files = map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files, stdout.String()
}

// start starts agent and proxy and waits until requests are decided.
func (s *site) start() {
	s.t.Helper()
	s.agent.start()
	s.proxy.start()
	s.proxy.awaitAgent()
}

// serve sends n small requests one by one and returns who served them. Each has
// to succeed.
func (s *site) serve(client *http.Client, n int) map[string]int {
	s.t.Helper()
	by := map[string]int{}
	for i := range n {
		c := small(i%2 == 0)
		a := c.do(client, s.front)
		if err := c.check(a); err != nil {
			s.t.Errorf("request %d: %v", i, err)
		}
		by[a.engine]++
	}
	return by
}

// awaitReservations waits until the pool has n reservations.
func (s *site) awaitReservations(n int) {
	s.t.Helper()
	eventually(s.t, 5*time.Second, fmt.Sprint("requests in flight: ", n), func() (bool, string) {
		p := s.agent.pool(pool)
		return p.Reservations == n, fmt.Sprintf("%+v", p)
	})
}

// awaitState waits until the agent has the replica in one of the states.
func (s *site) awaitState(replica string, most time.Duration, states ...string) {
	s.t.Helper()
	eventually(s.t, most, fmt.Sprintf("%s is %s", replica, strings.Join(states, " or ")), func() (bool, string) {
		p := s.agent.pool(pool)
		for _, state := range states {
			if p.replica(replica).State == state {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v of %v", p.replica(replica), p.Outcomes)
	})
}

// returns waits until the replica serves again.
func (s *site) returns(client *http.Client, replica string) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, replica+" serves again", func() (bool, string) {
		by := s.serve(client, 6)
		return by[replica] > 0, fmt.Sprint(by)
	})
}

// decides waits until the agent has decided n requests more, and knows the
// outcome of as many.
func (s *site) decides(n int) {
	s.t.Helper()
	before := s.agent.pool(pool)
	eventually(s.t, 20*time.Second, fmt.Sprint("decisions and their outcomes: ", n), func() (bool, string) {
		p := s.agent.pool(pool)
		return p.Decisions >= before.Decisions+n && p.Outcomes["served"] >= before.Outcomes["served"]+n, fmt.Sprintf("%+v", p)
	})
}

// untroubled checks that no counter of trouble has moved but those excused.
func (s *site) untroubled(excused ...string) {
	s.t.Helper()
	s.agent.stayZero(append([]string{"pointsman_feed_malformed_total", "pointsman_reservations_expired_total", "pointsman_reservations_replaced_total"}, s.proxy.troubles()...), excused...)
}

// idle checks that nothing is left on any replica.
func (s *site) idle(p poolStatus) {
	s.t.Helper()
	for _, r := range p.Replicas {
		if r.InFlight != 0 || r.Waiting != 0 || r.Tokens != 0 {
			s.t.Errorf("at the end: %+v", r)
		}
	}
}

// count is a counter of the pool.
func (s *site) count(name string) int {
	s.t.Helper()
	v, ok := s.agent.metrics()[fmt.Sprintf("pointsman_%s{pool=%q}", name, pool)]
	if !ok {
		s.t.Errorf("no metric pointsman_%s", name)
	}
	return int(v)
}
