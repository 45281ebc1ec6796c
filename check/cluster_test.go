package check

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// Files of a cluster that cannot be used, or that other agents refuse, are found, each in
// words of its own.
func TestClusterFiles(t *testing.T) {
	dir := t.TempDir()
	secret := writeFile(t, dir, "secret", "what the agents of the test share")
	ours, theirs := proxies.NewAuthority(t, dir, "ours"), proxies.NewAuthority(t, dir, "theirs")
	long := func(edit func(*x509.Certificate)) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotAfter = c.NotAfter.AddDate(1, 0, 0)
			edit(c)
		}
	}
	cert, key := ours.Certificate("a")
	otherCert, otherKey := theirs.Certificate("b", long(func(*x509.Certificate) {}))
	byName, byNameKey := ours.Certificate("name", long(func(c *x509.Certificate) { c.IPAddresses = nil; c.DNSNames = []string{"agents.example.org"} }))
	elsewhere, elsewhereKey := ours.Certificate("elsewhere", long(func(c *x509.Certificate) { c.DNSNames = nil; c.IPAddresses = []net.IP{net.IPv4(10, 1, 1, 1)} }))
	nowhere, nowhereKey := ours.Certificate("nowhere", long(func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil }))
	server, serverKey := ours.Certificate("server", long(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }))
	good, goodKey := ours.Certificate("good", long(func(*x509.Certificate) {}))
	garbage := writeFile(t, dir, "garbage", "no certificate")
	open, missing := writeFile(t, dir, "open", ""), filepath.Join(dir, "missing")
	if text, err := os.ReadFile(goodKey); err != nil || os.WriteFile(open, text, 0o600) != nil || os.Chmod(open, 0o644) != nil {
		t.Fatal(err)
	}
	const fault, warning = "", "warning: "
	for _, c := range []struct {
		name, secret, cert, key, ca, listen string
		peers                               string
		later                               time.Duration
		want                                string // "" = nothing
	}{
		{name: "no secret", secret: missing, want: fault + "cluster.secret_file: open " + missing},
		{name: "no certificate", cert: missing, want: fault + "cluster.tls.cert: open " + missing},
		{name: "no key", key: missing, want: fault + "cluster.tls.key: open " + missing},
		{name: "no authority", ca: missing, want: fault + "cluster.tls.ca: open " + missing},
		{name: "garbage", cert: garbage, want: fault + "cluster.tls: the certificate in " + garbage + " and the key in "},
		{name: "garbage for an authority", ca: garbage, want: fault + "cluster.tls.ca: no certificate in " + garbage},
		{name: "another's key", key: otherKey, want: "private key does not match public key"},
		{name: "another authority", cert: otherCert, key: otherKey, want: fault + "cluster.tls.cert: the certificate in " + otherCert + " is not one of the authority in " + ours.File},
		{name: "expired", later: 2 * time.Hour, want: fault + "cluster.tls.cert: the certificate in " + cert + " expired at "},
		{name: "not yet", later: -2 * time.Hour, want: " is not valid before "},
		{name: "soon", want: warning + "cluster.tls.cert: the certificate in " + cert + " expires at "},
		{name: "another host", cert: elsewhere, key: elsewhereKey, want: fault + "cluster.tls.cert: the certificate in " + elsewhere + " is for 10.1.1.1, not for 127.0.0.1, where this agent listens: the other agents refuse its connections"},
		{name: "no host", cert: nowhere, key: nowhereKey, want: fault + "cluster.tls.cert: the certificate in " + nowhere + " has no subjectAltName; want one with 127.0.0.1"},
		{name: "by name", cert: byName, key: byNameKey, want: warning + "cluster.tls.cert: the certificate in " + byName + " is for agents.example.org, not for 127.0.0.1"},
		{name: "for servers", cert: server, key: serverKey, want: "may not be used for clientAuth"},
		{name: "open key", cert: good, key: open, want: warning + "cluster.tls.key: " + open + " can be read by everyone"},
		{name: "by the name of all", cert: byName, key: byNameKey, peers: "agents.example.org:9910"},
		{name: "good", cert: good, key: goodKey},
		{name: "good everywhere", cert: good, key: goodKey, listen: "0.0.0.0:9910"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now = func() time.Time { return time.Now().Add(c.later) }
			defer func() { now = time.Now }()
			or := func(s, other string) string {
				if s == "" {
					return other
				}
				return s
			}
			conf := fmt.Sprintf("cluster: {name: test, listen: %q, peers: [%q], secret_file: %q, tls: {cert: %q, key: %q, ca: %q}}\n%s",
				or(c.listen, "127.0.0.1:9910"), or(c.peers, "10.0.0.6:9910"), or(c.secret, secret), or(c.cert, cert), or(c.key, key), or(c.ca, ours.File), pools)
			says, err := checked(t, conf, nil, Options{})
			found := ""
			for line := range strings.Lines(says) {
				if strings.Contains(line, "cluster.") {
					found += line
				}
			}
			if c.want == "" {
				if found != "" || !strings.Contains(says, "cluster test: ok\n") || err != nil {
					t.Errorf("%v:\n%s", err, says)
				}
				return
			}
			isWarning := strings.HasPrefix(c.want, warning)
			if !strings.Contains(found, c.want) || strings.Count(found, "\n") != 1 || isWarning != strings.HasPrefix(found, warning) || isWarning != (err == nil) {
				t.Errorf("%v:\n%swant %s", err, says, c.want)
			}
			if strings.Contains(says, "what the agents of the test share") {
				t.Error("the secret is shown")
			}
		})
	}
}
