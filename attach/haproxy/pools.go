package haproxy

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	hap "pointsman/haproxy"
)

// server is the part of a backend's server that pointsman needs.
type server struct {
	name, address string
	weight        int
	tls, backup   bool
	line          int
}

// servers reads the servers of a backend. odd names one whose address cannot
// be listed, such as a path or a variable.
func (s *section) servers() (list []server, odd string) {
	var base server
	for p := s; p != nil; p = p.parent {
		var chain server
		for i := range p.statements {
			if p.statements[i].Is("default-server") {
				chain.settings(p.statements[i].Words[1:])
			}
		}
		base.tls, base.weight = base.tls || chain.tls, max(base.weight, chain.weight)
	}
	for i := range s.statements {
		st := &s.statements[i]
		if st.Is("server-template") {
			return nil, "server-template " + st.Arg(1)
		}
		if !st.Is("server") || len(st.Words) < 3 {
			continue
		}
		one := base
		one.name, one.line = st.Arg(1), st.Line
		one.settings(st.Words[3:])
		address, ok := hostPort(st.Arg(2))
		if !ok {
			return nil, fmt.Sprintf("server %s at %q", st.Arg(1), st.Arg(2))
		}
		one.address = address
		list = append(list, one)
	}
	return list, ""
}

// settings reads parameters of a server.
func (s *server) settings(words []string) {
	for i, w := range words {
		switch w {
		case "ssl":
			s.tls = true
		case "no-ssl":
			s.tls = false
		case "backup":
			s.backup = true
		case "weight":
			if i+1 < len(words) {
				s.weight, _ = strconv.Atoi(words[i+1])
			}
		}
	}
}

// hostPort turns a server's address into host:port, if it has one.
func hostPort(s string) (string, bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "ipv4@"), "ipv6@")
	at := strings.LastIndexByte(s, ':')
	if at <= 0 || strings.ContainsAny(s, "$/@") {
		return "", false
	}
	host, port := strings.Trim(s[:at], "[]"), s[at+1:]
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port[0] == '+' {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// statsSocket is a stats socket of a global section.
type statsSocket struct {
	*hap.Statement
	in      *section
	address string // in our form
}

// statsSockets are those whose addresses are plain.
func (c *configuration) statsSockets() (list []statsSocket) {
	for _, sec := range c.sections {
		if sec.kind != "global" {
			continue
		}
		for i := range sec.statements {
			s := &sec.statements[i]
			if !s.Is("stats", "socket") {
				continue
			}
			address := s.Arg(2)
			switch {
			case strings.ContainsAny(address, "$"), strings.HasPrefix(address, "fd@"):
				continue
			case strings.HasPrefix(address, "/"):
				address = "unix://" + address
			case strings.HasPrefix(address, "unix@/"):
				address = "unix://" + strings.TrimPrefix(address, "unix@")
			default:
				var ok bool
				if address, ok = hostPort(address); !ok {
					continue
				}
			}
			list = append(list, statsSocket{s, sec, address})
		}
	}
	return list
}

// runtimeAPI is the address of the runtime API in our form, and empty if there is none.
// It is the socket with the most rights.
func (c *configuration) runtimeAPI() string {
	best, rank := "", -1
	for _, s := range c.statsSockets() {
		if level := slices.Index([]string{"user", "operator", "admin"}, after(s.Statement, "level")); level > rank {
			best, rank = s.address, level
		}
	}
	return best
}

// access notes a runtime API at a socket that belongs to root alone: HAProxy makes it before
// it changes its user. So does Debian's own configuration.
func (p *plan) access(api string) {
	for _, s := range p.statsSockets() {
		if s.address != api || !strings.HasPrefix(api, "unix://") {
			continue
		}
		owned := slices.ContainsFunc(s.Words, func(w string) bool { return slices.Contains([]string{"group", "gid", "user", "uid"}, w) })
		mode, err := strconv.ParseUint(after(s.Statement, "mode"), 8, 32)
		if owned || err == nil && mode&0o002 != 0 {
			continue
		}
		p.note("%s: only root can use this stats socket: add \"group haproxy\" to it, or pointsman does not learn which servers there are, are down or drained", p.where(s.in, s.Line))
	}
}

// after is the word after a keyword; that of a socket without a level is
// operator.
func after(s *hap.Statement, keyword string) string {
	if i := slices.Index(s.Words, keyword); i > 0 {
		return s.Arg(i + 1)
	}
	return "operator"
}

// plainKey is a YAML key that needs no quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z_][\w.-]*$`)

func yamlKey(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	if plainKey.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// yaml is a configuration of pointsman for the backends.
func (c *configuration) yaml(backends []*section) (string, []string, error) {
	var b strings.Builder
	var notes []string
	b.WriteString("# Written by `pointsman attach haproxy` from HAProxy's configuration. All keys:\n# docs/configuration.md.\n")
	api := c.runtimeAPI()
	if api != "" {
		fmt.Fprintf(&b, "haproxy:\n  runtime_api: %q\n", api)
	} else {
		notes = append(notes, "global: no stats socket with a level: pointsman does not learn which servers are down or drained; add \"stats socket /run/haproxy/admin.sock mode 660 group haproxy level admin\" and haproxy.runtime_api")
	}
	b.WriteString("pools:\n")
	for _, s := range backends {
		fmt.Fprintf(&b, "  %s: # %s %s, %s\n", yamlKey(s.name), s.kind, s.name, c.where(s, s.statements[0].Line))
		list, odd := s.servers()
		list = slices.DeleteFunc(list, func(one server) bool {
			if one.backup {
				notes = append(notes, fmt.Sprintf("%s: backup server %s is no replica: HAProxy uses it by itself", c.where(s, one.line), one.name))
			}
			return one.backup
		})
		switch {
		case odd != "" && api == "", odd == "" && len(list) == 0:
			return "", nil, fmt.Errorf("%s: backend %s has no server at host:port (%s), and there is no stats socket from which to learn them",
				c.where(s, s.statements[0].Line), s.name, odd)
		case odd != "":
			notes = append(notes, fmt.Sprintf("%s: replicas come from the runtime API, because of %s", s.name, odd))
			b.WriteString("    policy: least_work\n")
			continue
		}
		for i, one := range list {
			if j := slices.IndexFunc(list[:i], func(o server) bool { return o.address == one.address }); j >= 0 {
				return "", nil, fmt.Errorf("%s: servers %s and %s of %s %s are both at %s, and a replica has one name: remove one of them",
					c.where(s, one.line), list[j].name, one.name, s.kind, s.name, one.address)
			}
		}
		if slices.ContainsFunc(list, func(one server) bool { return one.tls }) {
			notes = append(notes, s.name+": servers speak TLS: pointsman does not poll their metrics, and goes by its own account and HAProxy's")
			b.WriteString("    metrics: \"off\" # the servers speak TLS\n")
		}
		b.WriteString("    replicas:\n")
		for _, one := range list {
			weight := ""
			if one.weight > 0 {
				weight = fmt.Sprintf(", weight: %d", one.weight)
			}
			fmt.Fprintf(&b, "      %s: {address: %q%s}\n", yamlKey(one.name), one.address, weight)
		}
	}
	return b.String(), notes, nil
}
