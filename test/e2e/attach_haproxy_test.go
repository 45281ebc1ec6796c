package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
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

// TestAttachHAProxy attaches to HAProxies that run already, by a reload. All
// requests are asked about and reported, none fails when the agent is killed,
// and detaching restores the configuration to the byte.
func TestAttachHAProxy(t *testing.T) {
	rig.OnEach(t, rig.HAProxies(t), func(t *testing.T, r rig.Release) {
		for name, pool := range map[string]string{"tls.cfg": "be_llm", "listen.cfg": "vllm", "own-log-format.cfg": "vllm"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				attachHAProxy(t, r, name, pool)
			})
		}
	})
}

func attachHAProxy(t *testing.T, r rig.Release, name, pool string) {
	o := rig.EngineOptions{Models: []string{rig.Model}}
	l1, l2 := rig.StartEngine(t, "l1", o), rig.StartEngine(t, "l2", o)
	s := rig.NewSite(t, r, "")
	h := s.HAProxy()
	secure := name == "tls.cfg"
	fronts := []string{s.Front}
	out := filepath.Join(s.Dir, "out")
	original, err := os.ReadFile(filepath.Join("../../attach/testdata/haproxy", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(original)
	fill := func(pairs ...string) { text = strings.NewReplacer(pairs...).Replace(text) }
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	fill("@front@", port(s.Front), "/run/haproxy/admin.sock", h.Runtime, "@cert@", certificate(t, s.Dir), " ssl verify none", "")
	for _, blank := range []string{"@front2@", "@front3@", "@front4@"} {
		if strings.Contains(text, blank) {
			more := rig.FreeAddress(t)
			fill(blank, port(more))
			if name == "own-log-format.cfg" {
				fronts = append(fronts, more)
			}
		}
	}
	fill("10.1.0.1:8443", l1.Address, "10.1.0.2:8443", l2.Address, "10.4.0.1:8000", l1.Address, "10.4.0.2:8000", l2.Address,
		"10.6.0.1:8000", l1.Address, "10.6.0.2:8000", l2.Address, "check port 8000", "check")
	before := text
	if err := os.Remove(s.Config()); err != nil {
		t.Fatal(err)
	}
	h.Proc = proxies.Start(t, r.Bin, text)
	path := filepath.Join(h.Proc.Dir, "haproxy.cfg")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	command := func(words ...string) {
		t.Helper()
		args := append(words, "haproxy", "--haproxy-config", path, "--config", s.Config(), "--out", out, "--write")
		cmd := exec.Command(rig.Binary, args...)
		cmd.Env = append(os.Environ(), "PATH="+inPath(t, r.Bin)+":"+os.Getenv("PATH"))
		if printed, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, printed)
		}
	}

	// The usual addresses may be taken on this machine: what attach makes of the
	// pools stays, and it is run again.
	command("attach")
	made, err := os.ReadFile(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\n", h.Listen(), s.Feed, s.Agent.Admin) +
		strings.Replace(string(made), "haproxy:\n", "haproxy:\n  poll: 100ms\n", 1))
	command("attach")
	s.Agent.Start()
	h.Reload()
	h.AwaitAgent()

	client := plainClient(secure)
	defer client.CloseIdleConnections()
	send := func(n int) {
		t.Helper()
		for i := range n {
			c := rig.Small(i%2 == 0)
			if err := c.Check(c.Do(client, fronts[i%len(fronts)])); err != nil {
				t.Errorf("request %d to %s: %v", i, fronts[i%len(fronts)], err)
			}
		}
	}
	const n = 40
	send(n)
	p := s.Agent.Settled(pool)
	if p.Decisions != n || p.Outcomes["served"] != n || p.FellOpen != 0 || h.Questions(s.Agent.Metrics()) != n {
		t.Errorf("of %d requests: %+v", n, p)
	}
	s.Untroubled()
	s.Agent.Kill()
	send(20)
	s.Agent.Start()
	rig.Eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
		send(2)
		p := s.Agent.Pool(pool)
		return p.Decisions >= 4, fmt.Sprintf("%+v", p)
	})

	command("detach")
	if now, err := os.ReadFile(path); err != nil || string(now) != before {
		t.Errorf("%v, detached to\n%s", err, now)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
	h.Reload()
	send(4)
}

// inPath is a folder with a haproxy that runs the binary.
func inPath(t *testing.T, bin proxies.Binary) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\nexec '" + strings.Join(bin.Command().Args, "' '") + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "haproxy"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plainClient is a client whose connections are secure, with HTTP/2 in them, or
// plain. What it sends is written as for http in either case.
func plainClient(secure bool) *http.Client {
	client := rig.NewClient(4, true, secure)
	if secure {
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
			return d.DialContext(ctx, network, address)
		}
	}
	return client
}

// certificate lays a certificate with its key into a folder, and returns the
// path.
func certificate(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
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
