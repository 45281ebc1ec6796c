package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// site is an installation: an agent, an HAProxy and the engines behind it.
type site struct {
	t       testing.TB
	bin     proxies.Binary
	dir     string // of the agent's configuration and sockets
	agent   *agent
	proxy   *proxies.Proc
	front   string // host:port of the frontend
	front2  string // the same, for HTTP/2 in plain text
	runtime string // path of HAProxy's runtime API
	feed    string // host:port of the agent's feed
}

// newSite lays out a site whose agent has the given pools (the YAML after what
// every site has in common). Nothing is started yet.
func newSite(t testing.TB, bin proxies.Binary, pools string) *site {
	t.Helper()
	// Paths of sockets are short: the folders of t.TempDir may not be.
	dir, err := os.MkdirTemp("", "pm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := func() string { return fmt.Sprint("127.0.0.1:", proxies.FreePort(t)) }
	s := &site{t: t, bin: bin, dir: dir, front: port(), front2: port(), feed: port(), runtime: filepath.Join(dir, "haproxy.sock")}
	admin := port()
	s.configure(fmt.Sprintf(`listen: {spoe: "unix://%s", feed: "%s", admin: "%s"}
haproxy: {runtime_api: "unix://%s", bind: "%s", poll: 100ms, processing_timeout: 1s}
`, s.spoe(), s.feed, admin, s.runtime, s.front) + pools)
	s.agent = newAgent(t, s.config(), admin)
	return s
}

func (s *site) config() string { return filepath.Join(s.dir, "pointsman.yaml") }
func (s *site) spoe() string   { return filepath.Join(s.dir, "spoe.sock") }

// configure writes the agent's configuration.
func (s *site) configure(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config(), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// edit replaces a part of the agent's configuration.
func (s *site) edit(old, new string) {
	s.t.Helper()
	b, err := os.ReadFile(s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		s.t.Fatalf("the configuration has no %q:\n%s", old, b)
	}
	s.configure(strings.Replace(string(b), old, new, 1))
}

// installed is where render expects its SPOE file to be installed; the tests
// lay it beside HAProxy's configuration instead.
const installed = "/etc/pointsman/pointsman-spoe.conf"

// render runs `pointsman render haproxy` and returns the files it writes and
// what it prints.
func (s *site) render(args ...string) (files map[string]string, printed string) {
	s.t.Helper()
	out := s.t.TempDir()
	cmd := exec.Command(binary, append([]string{"render", "haproxy", "--config", s.config(), "--version", s.bin.Version, "--out", out}, args...)...)
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
		files[e.Name()] = s.relocate(string(b))
	}
	return files, s.relocate(stdout.String())
}

// relocate makes the path of the SPOE file a relative one.
func (s *site) relocate(text string) string {
	return strings.ReplaceAll(text, installed, filepath.Base(installed))
}

// startProxy starts HAProxy with the complete rendered configuration, to which
// it adds a second bind for HTTP/2.
func (s *site) startProxy() {
	s.t.Helper()
	files, _ := s.render()
	cfg, spoe := files["haproxy.cfg"], files["pointsman-spoe.conf"]
	bind := "    bind " + s.front + "\n"
	if !strings.Contains(cfg, bind) || !strings.Contains(cfg, filepath.Base(installed)) {
		s.t.Fatalf("rendered configuration:\n%s", cfg)
	}
	cfg = strings.Replace(cfg, bind, bind+"    bind "+s.front2+" proto h2\n", 1)
	s.proxy = proxies.Start(s.t, s.bin, cfg, proxies.File{Name: filepath.Base(installed), Text: spoe})
}

// start starts agent and HAProxy and waits until requests are decided.
func (s *site) start() {
	s.t.Helper()
	s.agent.start()
	s.startProxy()
	s.awaitAgent()
}

// awaitAgent waits until HAProxy has found the agent to be up by a check, and
// the agent has found the replicas.
func (s *site) awaitAgent() {
	s.t.Helper()
	eventually(s.t, 10*time.Second, "HAProxy finds the agent up", func() (bool, string) {
		for line := range strings.Lines(s.command("show stat pointsman-agent 4 -1")) {
			f := strings.Split(line, ",")
			if len(f) > 36 && f[1] == "agent" {
				return f[17] == "UP" && strings.Contains(f[36], "OK") && !strings.HasPrefix(f[36], "*"), f[17] + " " + f[36]
			}
		}
		return false, "no such server"
	})
}

// command sends a command to HAProxy's runtime API and returns the answer.
func (s *site) command(text string) string {
	s.t.Helper()
	var c net.Conn
	eventually(s.t, 5*time.Second, "the runtime API is there", func() (bool, string) { // its name comes last, as HAProxy starts
		var err error
		c, err = net.DialTimeout("unix", s.runtime, 2*time.Second)
		return err == nil, fmt.Sprint(err)
	})
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		s.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// replicasYAML lists engines as the replicas of a pool, in YAML's flow form.
func replicasYAML(engines ...*engine) string {
	var parts []string
	for _, e := range engines {
		parts = append(parts, fmt.Sprintf("%s: {address: %q}", e.name, e.address))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
