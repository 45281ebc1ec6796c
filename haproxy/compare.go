package haproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// compare reports servers of a backend that are no replicas, and replicas that are no
// servers of it: the one gets no decisions, and decisions for the other are not followed.
func (a *adviser) compare(b *section) {
	replicas := a.Listed[b.name]
	if len(replicas) == 0 || len(b.own("server-template")) > 0 {
		return
	}
	servers := map[string]bool{}
	for _, l := range b.own("server") {
		name, address := l.Arg(1), l.Arg(2)
		servers[name] = true
		want, is := replicas[name]
		switch {
		case slices.Contains(l.Words, "backup"), slices.Contains(slices.Collect(maps.Values(a.Prefill)), name):
		case !is:
			a.warn("servers", b, l, fmt.Sprintf("add %s: {address: %q} to its replicas", name, address),
				"server %s is no replica of pool %s: it gets requests without a decision only", name, b.name)
		case !sameAddress(address, want):
			a.warn("servers", b, l, "correct one of them", "server %s is at %s, and the replica of this name at %s", name, address, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		if !servers[name] {
			a.warn("servers", b, &b.lines[0], fmt.Sprintf("add server %s %s, or remove the replica", name, replicas[name]),
				"no server %s, which is a replica of the pool: requests that are decided for it go to others", name)
		}
	}
}

// sameAddress reports whether two addresses can be the same. Names are not resolved.
func sameAddress(server, replica string) bool {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "ipv4@"), "ipv6@")
	if at := strings.LastIndexByte(server, ':'); at > 0 && strings.Contains(server[:at], ":") && server[0] != '[' {
		server = "[" + server[:at] + "]" + server[at:]
	}
	a, err := netip.ParseAddrPort(server)
	b, err2 := netip.ParseAddrPort(replica)
	return err != nil || err2 != nil || a == b
}
