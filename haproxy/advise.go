package haproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/templates"
)

// Wanted is what a configuration that pointsman is attached to should have.
type Wanted struct {
	Version templates.Version
	Bufsize int           // tune.bufsize, bytes
	Pools   []string      // the backends that requests should reach
	Own     []string      // of these, those whose servers are in the user's configuration
	Socket  string        // path of the unix socket that the agent listens on; empty = none
	Inside  []string      // paths that it listens on besides, such as one in a chroot
	Queue   time.Duration // the longest that an admission lets requests wait in HAProxy's queues
}

// Advise reads a user's haproxy.cfg and tells in words what pointsman needs
// and does not find there. An empty answer means that nothing is missing.
func Advise(config []byte, w Wanted) []string {
	f := findings{backends: map[string]*ownBackend{}}
	lines := bufio.NewScanner(bytes.NewReader(config))
	lines.Buffer(make([]byte, 0, 4096), 1<<20)
	section, name := "", ""
	for lines.Scan() {
		words := strings.Fields(stripComment(lines.Text()))
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "global", "defaults", "frontend", "backend", "listen", "ring", "log-profile", "peers", "resolvers", "userlist", "cache", "program", "http-errors", "mailers", "fcgi-app":
			section, name = words[0], ""
			if len(words) > 1 {
				name = words[1]
			}
			continue
		}
		f.look(section, words)
		if section == "backend" || section == "listen" {
			f.lookAtBackend(name, words)
		}
	}
	return f.advice(w)
}

// findings are what the configuration has of what is wanted.
type findings struct {
	backends     map[string]*ownBackend
	abortonclose bool
	closes       bool // of all backends, by the defaults
	ring         bool
	profile      bool
	bufsize      int
	routes       []string // what use_backend and default_backend name
	spoe         bool
	chroot       string
	queue        time.Duration // the shortest timeout queue; 0 = none
}

// ownBackend is what a backend of the user's has of what is pasted into it.
type ownBackend struct {
	follows bool // the decision names the server
	closes  bool // each request has a connection of its own
}

func (f *findings) lookAtBackend(name string, words []string) {
	b := f.backends[name]
	if b == nil {
		b = &ownBackend{}
		f.backends[name] = b
	}
	switch line := strings.Join(words, " "); {
	case words[0] == "use-server" && strings.Contains(line, "txn.pm.server"):
		b.follows = true
	case line == "option http-server-close" || line == "option httpclose":
		b.closes = true
	}
}

func (f *findings) look(section string, words []string) {
	line := strings.Join(words, " ")
	switch {
	case section == "global" && words[0] == "chroot" && len(words) > 1:
		f.chroot = words[1]
	case section == "global" && words[0] == "tune.bufsize" && len(words) > 1:
		f.bufsize, _ = strconv.Atoi(words[1])
	case section == "defaults" && line == "option abortonclose":
		f.abortonclose = true
	case section == "defaults" && (line == "option http-server-close" || line == "option httpclose"):
		f.closes = true
	case words[0] == "timeout" && len(words) > 2 && words[1] == "queue":
		if d := duration(words[2]); d > 0 && (f.queue == 0 || d < f.queue) {
			f.queue = d
		}
	case words[0] == "log" && strings.Contains(line, "ring@"+templates.Ring):
		f.ring = true
		f.profile = f.profile || strings.Contains(line, " profile ")
	case words[0] == "log-format" && strings.Contains(line, templates.FeedMarker+" "):
		f.profile = true
	case (words[0] == "use_backend" || words[0] == "default_backend") && len(words) > 1:
		f.routes = append(f.routes, words[1])
	case strings.HasPrefix(line, "filter spoe") && strings.Contains(line, "pointsman"):
		f.spoe = true
	}
}

func (f *findings) advice(w Wanted) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !f.abortonclose && !w.Version.AtLeast(3, 4) {
		say("defaults: no \"option abortonclose\": a request whose client leaves runs to its end on the replica")
	}
	switch size := f.bufsize; {
	case size == 0:
		say("global: no tune.bufsize: of a body only the first 15 KB are seen; want %d", w.Bufsize)
	case size < w.Bufsize:
		say("global: tune.bufsize is %d, less than the %d that pointsman's own files are rendered for", size, w.Bufsize)
	}
	if !f.ring {
		say("frontend: no \"log ring@%s\": outcomes are not learned, and each reservation lasts until its lease ends", templates.Ring)
	} else if !f.profile {
		say("frontend: the log to ring@%s has neither a profile nor a log-format with the fields behind %s: outcomes cannot be read", templates.Ring, templates.FeedMarker)
	}
	if !f.reaches(w.Pools) && !f.spoe {
		say("frontend: no use_backend leads to %s: pointsman is never asked", strings.Join(w.Pools, " or "))
	}
	if f.queue > 0 && f.queue < w.Queue {
		say("timeout queue is %v, shorter than the %v that requests may wait by the admission's ttl", f.queue, w.Queue)
	}
	for _, name := range w.Own {
		switch b := f.backends[name]; {
		case b == nil:
			say("no backend %s: the pool has no replicas listed, so its servers should stand there", name)
		case !b.follows:
			say("backend %s: no use-server with txn.pm.server: decisions are not followed", name)
		case !b.closes && !f.closes:
			say("backend %s: no \"option http-server-close\": when a replica dies, some clients are left without an answer and without a log line", name)
		}
	}
	if inside := path.Join(f.chroot, w.Socket); f.chroot != "" && w.Socket != "" && !slices.Contains(w.Inside, inside) {
		say("global: chroot %s hides the agent's unix socket: have it listen on %s too, as pointsman-spoe.socket does in Debian's, or on 127.0.0.1", f.chroot, inside)
	}
	return out
}

// duration reads a time as HAProxy writes it, in milliseconds unless it has a
// unit; what is none is 0.
func duration(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return time.Duration(n) * time.Millisecond
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, _ := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

func (f *findings) reaches(pools []string) bool {
	for _, r := range f.routes {
		for _, p := range pools {
			if r == p || strings.Contains(r, "txn.pm.pool") {
				return true
			}
		}
	}
	return false
}

// stripComment removes what follows an unquoted '#'.
func stripComment(line string) string {
	var quote byte
	for i := range len(line) {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\\':
			return line // rare, and a comment behind it does no harm here
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			return line[:i]
		}
	}
	return line
}
