package haproxy

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is what HAProxy has found about a server that is down.
type check struct {
	bytes   uint64 // that it has sent
	unclear bool   // a check is under way, and the last one does not say why it failed
}

// unreachable are what systems report about a host that does not answer on their own network.
var unreachable = regexp.MustCompile(`(?i)no route to host|unreachable|host is down`)

// readCheck reads what "show stat" has about the last check of a server. It reports false if
// a host has answered. One that refuses the check is there, and may finish its requests.
func readCheck(status, detail, bytes string) (c check, silent bool) {
	n, err := strconv.ParseUint(bytes, 10, 64)
	running := strings.HasPrefix(status, "* ")
	switch {
	case err != nil:
		return check{}, false
	case strings.HasSuffix(status, "L4TOUT"), strings.HasSuffix(status, "L4CON") && unreachable.MatchString(detail):
		return check{bytes: n}, true
	}
	return check{bytes: n, unclear: true}, running && detail == ""
}

// silences remember servers that are down because nothing answers their checks, and that
// send nothing either. Their hosts are gone. HAProxy has no tcp-ut for servers that are
// added at run time, and a request that it has sent to such a host over a kept connection
// would wait for timeout server. The zero value is ready.
type silences map[string]silence // by BACKEND/NAME

type silence struct {
	bytes uint64
	since time.Time
}

// longestSilence is how long such a server may have requests. Those that it has received go
// to another one after 16 s, when TCP's own probes have failed: see srvtcpka in the rendered
// configuration. The others end.
const longestSilence = 20 * time.Second

// over returns the servers of a pool that were silent for too long, and starts their time
// again. now has the checks of the silent servers of all pools.
func (s *silences) over(pool string, now map[string]check, at time.Time) (list []string) {
	maps.DeleteFunc(*s, func(server string, was silence) bool {
		c, still := now[server]
		return !still || c.bytes != was.bytes
	})
	for server, c := range now {
		name, ours := strings.CutPrefix(server, pool+"/")
		if !ours || !isAddress(name) || c.unclear {
			continue
		}
		was, known := (*s)[server]
		if known && at.Sub(was.since) < longestSilence {
			continue
		}
		if known {
			list = append(list, server)
		}
		if *s == nil {
			*s = silences{}
		}
		(*s)[server] = silence{c.bytes, at}
	}
	slices.Sort(list)
	return list
}
