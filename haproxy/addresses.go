package haproxy

import (
	"net"
	"path"
	"slices"
	"strings"

	"pointsman/templates"
)

// again is the remedy where the proxy's files and pointsman.yaml differ.
const again = "attach or render again and reload HAProxy, unless a container or a forwarded port leads there"

// addresses reports questions and log lines that go elsewhere than where the agent listens,
// as after a change of listen without attaching again.
func (a *adviser) addresses() {
	for _, s := range a.sections {
		switch {
		case s.lines[0].file == a.Ours:
		case s.kind == "backend" && s.name == templates.AgentBackend:
			a.listens(s, "listen.spoe", a.Agent, "it is not asked")
		case s.kind == "ring" && s.name == templates.Ring:
			a.listens(s, "listen.feed", a.Feed, "outcomes are not reported")
		}
	}
}

// listens reports a section none of whose servers can be the agent at this address.
func (a *adviser) listens(s *section, key, address, effect string) {
	servers := s.own("server")
	if address == "" || len(servers) == 0 || slices.ContainsFunc(servers, func(l *rule) bool { return a.leadsTo(l.Arg(2), address) }) {
		return
	}
	a.warn("address", s, servers[0], again, "server %s is at %s, and the agent listens on %s (%s): %s",
		servers[0].Arg(1), servers[0].Arg(2), address, key, effect)
}

// leadsTo reports whether a server of HAProxy's can be an address of our configuration.
// Hosts are not compared: the agent may listen on all of its own.
func (a *adviser) leadsTo(server, address string) bool {
	if strings.ContainsAny(server, "$%") {
		return true // a variable, which is not known here
	}
	socket, isUnix := strings.CutPrefix(address, "unix://")
	file, toUnix := strings.CutPrefix(server, "unix@")
	if strings.HasPrefix(server, "/") {
		file, toUnix = server, true
	}
	if !toUnix && !isUnix {
		_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "tcp://"))
		return err != nil || strings.HasSuffix(server, ":"+port) || !strings.Contains(server, ":")
	}
	if !toUnix || !isUnix {
		return false
	}
	inside := file
	if chroot := a.chroot(); chroot != nil {
		inside = path.Join(chroot.Arg(1), file)
	}
	return file == socket || inside == socket || slices.Contains(a.Inside, inside)
}

// chroot is the line that changes HAProxy's root, nil if there is none.
func (a *adviser) chroot() (last *rule) {
	for _, s := range a.sections {
		for _, l := range s.own("chroot") {
			if s.kind == "global" && l.file != a.Ours {
				last = l
			}
		}
	}
	return last
}
