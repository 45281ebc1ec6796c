package haproxy

import (
	"slices"
	"strings"

	"pointsman/attach"
	hap "pointsman/haproxy"
)

// keep has the servers of a backend inherit what kept connections need, and reports whether
// they can be kept. Otherwise each request gets a new one, and a note gives the reason.
func (p *plan) keep(b *section) (bool, error) {
	if !p.render.Keeps {
		return false, nil
	}
	first, several, why := p.keptServers(b)
	if why == "" {
		why = p.ownConnections(b)
	}
	if why != "" {
		p.note("%s: each request to %s gets a new connection, because of %s; without that, connections are kept", p.where(b, b.statements[0].Line), b.name, why)
		return false, nil
	}
	text, err := p.render.Servers(several)
	if err != nil {
		return false, err
	}
	at, _ := b.enclosing(first.Line)
	p.add(b, at, slices.DeleteFunc(textLines(text), func(l attach.Line) bool {
		w := strings.Fields(l.Text)
		return len(w) == 3 && b.mentions(w[1]) != "" // a time that the owner has set otherwise
	})...)
	return true, nil
}

// ownConnections returns a setting of the owner's that says how connections or retries are
// to be, which stays in force; "" if there is none.
func (p *plan) ownConnections(b *section) string {
	for _, s := range append(p.frontends(b), b) {
		for _, option := range []string{"http-server-close", "httpclose"} {
			if s.option(option) {
				return "option " + option
			}
		}
	}
	for _, keyword := range []string{"http-reuse", "retry-on"} {
		if s, _ := b.find(begins(keyword)); s != nil && s.Text() != "http-reuse always" {
			return s.Text()
		}
	}
	for _, words := range [][]string{{"retries"}, {"dispatch"}, {"http-request", "allow"}} {
		if s := b.own(begins(words...)); s != nil {
			return s.Text() // after allow, nothing below it is done
		}
	}
	return ""
}

// unsuited are arguments of servers with which connections get new ones: of TLS, whose names
// are the only ones before HAProxy 3.0, of checks other than ours, and of other protocols.
var unsuited = []string{"ssl", "sni", "pool-conn-name", "observe", "on-error", "error-limit", "track", "proto", "alpn",
	"send-proxy", "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn", "socks4"}

// keptServers returns the first server of a backend, whether there are several, and why their
// connections cannot be kept; "" if they can.
func (p *plan) keptServers(b *section) (first *hap.Statement, several bool, why string) {
	checked := false
	for s := b; s != nil && !checked; s = s.parent {
		for i := range s.statements {
			if d := &s.statements[i]; d.Is("default-server") {
				checked = checked || slices.Contains(d.Words, "check")
			}
		}
	}
	if word := b.mentions(unsuited...); word != "" {
		return nil, false, word + " of its servers"
	}
	unchecked := b.mentions("no-check") != ""
	for i := range b.statements {
		s := &b.statements[i]
		if !s.Is("server") && !s.Is("server-template") {
			continue
		}
		several = several || first != nil || s.Is("server-template")
		if first == nil {
			first = s
		}
		unchecked = unchecked || !checked && !slices.Contains(s.Words, "check")
	}
	switch {
	case first == nil:
		return nil, false, "servers that are not in its section"
	case several && unchecked:
		return nil, false, "servers without check"
	}
	return first, several, ""
}

// mentions returns the first of the words that is an argument of the section's servers; "" if
// none is.
func (s *section) mentions(words ...string) string {
	for ; s != nil; s = s.parent {
		for i := range s.statements {
			st := &s.statements[i]
			if !st.Is("server") && !st.Is("server-template") && !st.Is("default-server") {
				continue
			}
			for _, w := range st.Words[1:] {
				if slices.Contains(words, w) {
					return w
				}
			}
		}
	}
	return ""
}
