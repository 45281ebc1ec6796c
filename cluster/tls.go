package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// TLSFiles are the files of TLS between agents, or to NATS. Cert and Key may be empty where
// only the other side shows a certificate; an empty CA means the authorities of the system.
type TLSFiles struct{ Cert, Key, CA string }

// Read returns the configuration in the files.
func (f TLSFiles) Read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert}
	if f.Cert != "" {
		pair, err := f.pair()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pool, err := f.authorities()
		if err != nil {
			return nil, err
		}
		c.RootCAs, c.ClientCAs = pool, pool
	}
	return c, nil
}

// pair reads the certificate and its key. Errors name the file at fault.
func (f TLSFiles) pair() (tls.Certificate, error) {
	var pair tls.Certificate
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return pair, fmt.Errorf("cluster.tls.cert: %w", err)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return pair, fmt.Errorf("cluster.tls.key: %w", err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, fmt.Errorf("cluster.tls: the certificate in %s and the key in %s: %w", f.Cert, f.Key, err)
	}
	return pair, nil
}

func (f TLSFiles) authorities() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("cluster.tls.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("cluster.tls.ca: no certificate in " + f.CA)
	}
	return pool, nil
}

// expiresSoon is how long before its end a warning says that a certificate expires.
const expiresSoon = 14 * 24 * time.Hour

// Examine reports, from the files alone, why other agents would refuse the certificate:
// faults, and warnings about what may be intended. listens is where this agent listens,
// names are its other names; without listens it only connects, to a NATS server.
func (f TLSFiles) Examine(now time.Time, listens string, names []string) (faults, warnings []string, err error) {
	if _, err := f.Read(); err != nil {
		return nil, nil, err
	}
	if f.Key != "" {
		if info, err := os.Stat(f.Key); err == nil && info.Mode().Perm()&0o007 != 0 {
			warnings = append(warnings, fmt.Sprintf("cluster.tls.key: %s can be read by everyone; want mode 0640 or 0600", f.Key))
		}
	}
	if f.Cert == "" {
		return nil, warnings, nil
	}
	pair, err := f.pair()
	if err != nil {
		return nil, nil, err
	}
	leaf := pair.Leaf
	at := "cluster.tls.cert: the certificate in " + f.Cert
	const day = "2006-01-02 15:04 MST"
	switch {
	case now.After(leaf.NotAfter):
		faults = append(faults, at+" expired at "+leaf.NotAfter.UTC().Format(day))
	case now.Before(leaf.NotBefore):
		faults = append(faults, at+" is not valid before "+leaf.NotBefore.UTC().Format(day))
	case leaf.NotAfter.Sub(now) < expiresSoon:
		warnings = append(warnings, at+" expires at "+leaf.NotAfter.UTC().Format(day))
	}
	if listens == "" {
		return faults, warnings, nil
	}
	if len(faults) == 0 {
		faults = append(faults, f.distrusted(pair, now, at)...)
	}
	host := listens
	if h, _, err := net.SplitHostPort(listens); err == nil {
		host = h
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return faults, warnings, nil
	}
	matches := func(name string) bool { return leaf.VerifyHostname(name) == nil }
	if matches(host) {
		return faults, warnings, nil
	}
	text := fmt.Sprintf("%s is for %s, not for %s, where this agent listens", at, strings.Join(hostsOf(leaf), ", "), host)
	if len(hostsOf(leaf)) == 0 {
		text = fmt.Sprintf("%s has no subjectAltName; want one with %s, where this agent listens", at, host)
	}
	if slices.ContainsFunc(names, matches) {
		return faults, warnings, nil
	}
	if len(leaf.DNSNames) > 0 {
		return faults, append(warnings, text+": the other agents must name it by one of these in peers"), nil
	}
	return append(faults, text), warnings, nil
}

// distrusted returns why agents with the same authority refuse the certificate.
func (f TLSFiles) distrusted(pair tls.Certificate, now time.Time, at string) []string {
	pool, err := f.authorities()
	if err != nil {
		return []string{err.Error()}
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	for _, use := range []struct {
		key  x509.ExtKeyUsage
		name string
	}{{x509.ExtKeyUsageServerAuth, "serverAuth"}, {x509.ExtKeyUsageClientAuth, "clientAuth"}} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use.key}})
		var invalid x509.CertificateInvalidError
		switch {
		case err == nil:
		case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
			return []string{fmt.Sprintf("%s may not be used for %s; agents both accept and make connections: want extendedKeyUsage serverAuth and clientAuth, or none", at, use.name)}
		default:
			return []string{fmt.Sprintf("%s is not one of the authority in %s: %v", at, f.CA, err)}
		}
	}
	return nil
}

// hostsOf lists the hosts that a certificate is for.
func hostsOf(c *x509.Certificate) []string {
	list := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	return list
}
