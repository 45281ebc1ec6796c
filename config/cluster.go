package config

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Cluster says with which other agents this one shares what it has reserved. Without
// a name it shares nothing.
type Cluster struct {
	Name  string `yaml:"name"`  // the same in all agents
	Agent string `yaml:"agent"` // the name of this one; empty = that of its host
	// Listen is where the other agents connect, host:port, and Peers are where they
	// listen; a name may stand for several. NATS is a server in their place.
	Listen string   `yaml:"listen"`
	Peers  []string `yaml:"peers"`
	NATS   string   `yaml:"nats"`
	// SecretFile holds what the agents recognise each other by.
	SecretFile string     `yaml:"secret_file"`
	TLS        ClusterTLS `yaml:"tls"`
}

// ClusterTLS are the files of TLS between agents, or to NATS: this agent's
// certificate and key, and the authority that has signed those of the others.
type ClusterTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

// On reports whether the agent shares anything.
func (c *Cluster) On() bool { return c.Name != "" }

// On reports whether TLS is used.
func (t *ClusterTLS) On() bool { return *t != ClusterTLS{} }

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// mostPeers is how many other agents there may be.
const mostPeers = 64

func (v *validator) cluster() {
	c := &v.config.Cluster
	if !c.On() {
		if c.Agent != "" || c.Listen != "" || len(c.Peers) > 0 || c.NATS != "" || c.SecretFile != "" || c.TLS.On() {
			v.refuse("cluster", "want a name, the same in all agents, such as name: prod")
		}
		return
	}
	if !clusterName.MatchString(c.Name) {
		v.refuse("cluster.name", "%s; want 1 to 64 letters, digits or _ -", quote(c.Name))
	}
	if c.Agent != "" && !nameForm.MatchString(c.Agent) {
		v.refuse("cluster.agent", "%s; "+nameWant, quote(c.Agent))
	}
	if c.SecretFile == "" {
		v.refuse("cluster", "want secret_file, the same in all agents, such as /etc/pointsman/cluster.secret")
	}
	for path, file := range map[string]string{
		"cluster.secret_file": c.SecretFile, "cluster.tls.cert": c.TLS.Cert, "cluster.tls.key": c.TLS.Key, "cluster.tls.ca": c.TLS.CA,
	} {
		if file != "" && (!filepath.IsAbs(file) || strings.ContainsFunc(file, unicode.IsControl)) {
			v.refuse(path, "%s; want the absolute path of a file", quote(file))
		}
	}
	switch {
	case c.NATS != "":
		v.clusterNATS()
	case c.Listen == "":
		v.refuse("cluster", "want listen, the address that other agents connect to, such as 10.0.0.5:9910, or nats, the URL of a NATS server")
	default:
		v.clusterListen()
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		v.refuse("cluster.tls", "want cert and key together")
	}
}

// clusterNATS checks what goes with a NATS server of the operator's.
func (v *validator) clusterNATS() {
	c := &v.config.Cluster
	if c.Listen != "" || len(c.Peers) > 0 {
		v.refuse("cluster", "want either listen and peers, for the NATS inside the agents, or nats, for one that runs elsewhere")
	}
	if err := CheckNATS(c.NATS); err != nil {
		v.refuse("cluster.nats", "%v", err)
	}
}

// CheckNATS checks URLs of NATS servers, with commas between them. Its errors are without
// the URLs, which may hold a password.
func CheckNATS(urls string) error {
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls"}, u.Scheme) {
			return errors.New("not the URL of a NATS server; want nats://host:4222 or tls://host:4222, several with commas between them")
		}
		if _, has := u.User.Password(); u.User != nil && !has {
			return errors.New("a user without a password; want nats://user:password@host:4222")
		}
	}
	return nil
}

// clusterListen checks what goes with the NATS inside the agents.
func (v *validator) clusterListen() {
	c := &v.config.Cluster
	v.hostPort("cluster.listen", c.Listen)
	if c.Listen != "" && c.Listen[0] == ':' {
		v.refuse("cluster.listen", "%s; want the address by which the other agents reach this one, such as 10.0.0.5%s", quote(c.Listen), c.Listen)
	}
	if len(c.Peers) > mostPeers {
		v.refuse("cluster.peers", "want at most %d", mostPeers)
	}
	for i, p := range c.Peers {
		path := in("cluster.peers", strconv.Itoa(i))
		v.hostPort(path, p)
		if p != "" && p[0] == ':' {
			v.refuse(path, "%s; want host:port", quote(p))
		}
	}
	if t := &c.TLS; t.On() && (t.Cert == "" || t.Key == "" || t.CA == "") {
		v.refuse("cluster.tls", "want cert, key and ca: agents show each other their certificates")
	}
}

// hostPort refuses what is not host:port.
func (v *validator) hostPort(path, address string) {
	host, port, err := net.SplitHostPort(address)
	if n, err2 := strconv.Atoi(port); err != nil || err2 != nil || n < 1 || n > 65535 || strings.ContainsFunc(host, unicode.IsSpace) {
		v.refuse(path, "%s; want host:port, such as 10.0.0.5:9910", quote(address))
	}
}
