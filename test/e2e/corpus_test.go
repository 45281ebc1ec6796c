package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// corpus is where the configurations are that attach is tried with: attach's own
// tests check each with every release, the tests here drive traffic through it.
const corpus = "../../attach/testdata"

// shape says how one of these configurations is driven. Its zero value sends
// chats to the first address.
type shape struct {
	calls    []rig.Call
	fronts   []string // blanks of the addresses that lead to engines; empty = "@front@"
	secure   string   // the protocol over TLS, "h2" or "http/1.1"; empty = no TLS
	backends []string // for --backend
}

// to are chats at paths.
func to(paths ...string) (calls []rig.Call) {
	for _, p := range paths {
		calls = append(calls, rig.Call{Path: p})
	}
	return calls
}

// with is a chat with a header.
func with(name, value string) []rig.Call { return []rig.Call{{Header: map[string]string{name: value}}} }

// corpusNames lists the configurations for a proxy.
func corpusNames(t testing.TB, proxy string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(corpus, proxy))
	if err != nil || len(entries) < 20 {
		t.Fatal(len(entries), err)
	}
	for _, e := range entries {
		if rig.Soak || !inSoaks[e.Name()] {
			names = append(names, e.Name())
		}
	}
	return names
}

// layCorpus copies a configuration into a folder, with its texts edited.
func layCorpus(t testing.TB, from, dir string, edit func(string) string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, filepath.Dir(from)))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(edit(string(text))), 0o640)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// texts are all files below a path, with their modes.
func texts(t testing.TB, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name := d.Name(); strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".pid") {
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&b, "==> %s %v\n%s", path, info.Mode(), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// anyReplica matches the addresses of engines in the configurations for HAProxy.
var anyReplica = regexp.MustCompile(`(?:10\.\d+\.\d+\.\d+|\[fd00::\d+\]):(?:8000|8443|30000)\b`)

// attachCommand runs `pointsman attach`, detach or check with a proxy of that
// release in the path.
func attachCommand(s *rig.Site, args ...string) string {
	s.T.Helper()
	cmd := exec.Command(rig.Binary, args...)
	cmd.Env = append(os.Environ(), "PATH="+inPath(s.T, s.Release)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// inPath is a folder with a haproxy or nginx that runs the release.
func inPath(t testing.TB, r rig.Release) string {
	t.Helper()
	dir := t.TempDir()
	name, _, _ := strings.Cut(r.Name, "-")
	script := "#!/bin/sh\nexec '" + strings.Join(r.Bin.Command().Args, "' '") + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// user is somebody who has a proxy with one of the configurations, and engines.
type user struct {
	*rig.Site
	shape
	fronts []string // addresses that lead to engines
	own    string   // path of the configuration
	flag   string   // that names it
	// complete makes of attach's configuration one with the test's own addresses.
	complete func(made string) string
	reload   func()
	client   *http.Client
}

// proxy is the name of the proxy.
func (u *user) proxy() string {
	name, _, _ := strings.Cut(u.Name, "-")
	return name
}

// args are those of attach and detach.
func (u *user) args() []string {
	return []string{u.proxy(), u.flag, u.own, "--config", u.Config(), "--out", filepath.Join(u.Dir, "out"), "--write"}
}

// send sends n requests, each of which has to succeed.
func (u *user) send(n int) {
	u.T.Helper()
	for i := range n {
		c := u.call(i)
		front := u.fronts[i/max(1, len(u.calls))%len(u.fronts)]
		if err := c.Check(c.Do(u.client, front)); err != nil {
			u.T.Errorf("request %d, %s %s: %v", i, front, c.Path, err)
		}
	}
}

// attach attaches. The usual addresses may be taken on this machine: what attach makes
// of the pools stays, and it is run again.
func (u *user) attach() {
	u.T.Helper()
	attach := append([]string{"attach"}, u.args()...)
	for _, b := range u.backends {
		attach = append(attach, "--backend", b)
	}
	if err := os.Remove(u.Config()); err != nil {
		u.T.Fatal(err)
	}
	attachCommand(u.Site, attach...)
	made, err := os.ReadFile(u.Config())
	if err != nil {
		u.T.Fatal(err)
	}
	u.Configure(u.complete(string(made)))
	attachCommand(u.Site, attach...)
	if again := attachCommand(u.Site, attach...); !strings.Contains(again, "nothing to change") {
		u.T.Errorf("a second time: %s", again)
	}
}

// awaitAsking waits until no process serves any more that does not ask.
func (u *user) awaitAsking() {
	u.T.Helper()
	rig.Eventually(u.T, 20*time.Second, "only what asks serves", func() (bool, string) {
		u.client.CloseIdleConnections()
		start := total(u.Site)
		u.send(3)
		p := total(u.Site)
		return p.Decisions == start.Decisions+3, fmt.Sprintf("%+v", p)
	})
}

// live runs `check --live`.
func (u *user) live() {
	u.T.Helper()
	c := u.call(0)
	scheme := "http://"
	if u.secure != "" {
		scheme = "https://"
	}
	if c.Path == "" {
		c.Path = rig.ChatPath
	}
	args := []string{"check", "--live", scheme + u.fronts[0] + c.Path, "--admin", u.Agent.Admin, "--model", rig.Model, "--insecure"}
	for name, value := range c.Header {
		args = append(args, "--header", name+": "+value)
	}
	if out := attachCommand(u.Site, args...); !strings.HasSuffix(out, "\nasked, decided, reported\n") {
		u.T.Errorf("check --live: %s", out)
	}
}

// drive attaches to a proxy that serves already, checks it, sends requests that are
// all asked about and reported, kills the agent, and detaches.
func (u *user) drive() {
	t := u.T
	t.Helper()
	defer u.client.CloseIdleConnections()
	u.send(2) // without pointsman
	before := texts(t, filepath.Dir(u.own))
	u.attach()
	u.Agent.Start()
	u.reload()
	u.awaitAsking()
	attachCommand(u.Site, "check", "--config", u.Config(), u.flag, u.own)
	u.live()

	const n = 24
	start := total(u.Site)
	u.send(n)
	if p := total(u.Site); p.Decisions != start.Decisions+n || p.Outcomes["served"] != start.Outcomes["served"]+n || p.FellOpen != 0 {
		t.Errorf("of %d requests: %+v, before %+v", n, p, start)
	}
	u.Untroubled()
	u.Agent.Kill()
	u.send(12)
	if rig.Soak {
		u.Agent.Start()
		rig.Eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
			u.send(2)
			p := total(u.Site)
			return p.Decisions >= 4, fmt.Sprintf("%+v", p)
		})
	}
	attachCommand(u.Site, append([]string{"detach"}, u.args()...)...)
	if now := texts(t, filepath.Dir(u.own)); now != before {
		t.Errorf("before\n%s\ndetached to\n%s", before, now)
	}
	u.reload()
	u.client.CloseIdleConnections()
	u.send(2)
}

// total is the status of all pools together, when no reservation is left.
func total(s *rig.Site) (sum rig.PoolStatus) {
	s.T.Helper()
	rig.Eventually(s.T, 15*time.Second, "no reservation is left", func() (bool, string) {
		sum = rig.PoolStatus{Outcomes: map[string]int{}}
		for _, p := range s.Agent.Pools() {
			sum.Reservations += p.Reservations
			sum.Decisions += p.Decisions
			sum.FellOpen += p.FellOpen
			for k, v := range p.Outcomes {
				sum.Outcomes[k] += v
			}
		}
		return sum.Reservations == 0, fmt.Sprintf("%+v", sum)
	})
	return sum
}

// call is the i-th request.
func (sh *shape) call(i int) rig.Call {
	c := rig.Small(i%2 == 0)
	if len(sh.calls) > 0 {
		c.Path, c.Header = sh.calls[i%len(sh.calls)].Path, sh.calls[i%len(sh.calls)].Header
	}
	return c
}

// newClient speaks plainly or over TLS. What it sends is written as for http in either
// case.
func (sh *shape) newClient() *http.Client {
	client := rig.NewClient(4, true, sh.secure == "h2")
	if sh.secure != "" {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{sh.secure}}}
		client.Transport.(*http.Transport).DialContext = d.DialContext
	}
	return client
}

// atPort starts an engine at an address of the loopback of its own with that port:
// by their ports attach finds engines. Those at 8443 and above speak TLS.
func atPort(t testing.TB, name, port, certificate string, anywhere bool) (address string) {
	t.Helper()
	address = fmt.Sprintf("127.%d.%d.%d:%s", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254), port)
	o := rig.EngineOptions{Models: []string{rig.Model}}
	if strings.HasPrefix(port, "844") {
		secured(t, rig.StartEngine(t, name, o), address, certificate)
		return address
	}
	rig.StartEngineAt(t, name, address, o).Anywhere = anywhere
	return address
}

// secured has an engine speak TLS at an address.
func secured(t testing.TB, e *rig.Engine, address, certificate string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(c, e.Address)
		}
	}()
}

// relay joins a connection to an address until either side ends.
func relay(c net.Conn, address string) {
	defer c.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, c)
		to.Close()
	}()
	_, _ = io.Copy(c, to)
}

// certificate lays a certificate with its key into a folder, and returns the
// path.
func certificate(t testing.TB, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost", "llm.internal.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: own})...)
	path := filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(path, both, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
