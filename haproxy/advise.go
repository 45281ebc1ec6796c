package haproxy

import (
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
	Inside  []string      // further paths that it listens on, such as one in a chroot
	Queue   time.Duration // the longest time that an admission lets requests wait in HAProxy's queues
}

// Advise reads a user's haproxy.cfg and says what pointsman needs and does not
// find there. An empty answer means that nothing is missing.
func Advise(config []byte, w Wanted) []string {
	f := findings{backends: map[string]*ownBackend{}}
	for _, s := range ParseConfig(config) {
		f.add(&s)
	}
	return f.advice(w)
}

// findings are what the configuration has of what is wanted.
type findings struct {
	backends     map[string]*ownBackend
	abortonclose bool
	closes       bool // a connection for each request in all backends, by the defaults
	ring         bool
	profile      bool
	spoe         bool
	gates        []int    // lines that decide by the model of the body as HAProxy reads it
	routes       []string // arguments of use_backend and default_backend

	bufsize, bufsizeLine int
	chroot               string
	chrootLine           int
	queue                time.Duration // the shortest timeout queue; 0 = none
	queueLine            int
}

// ownBackend is what a backend of the user's has of what is pasted into it.
type ownBackend struct {
	follows bool // the decision names the server
	closes  bool // each request has a connection of its own
}

// add notes one statement.
func (f *findings) add(s *Statement) {
	closes := s.Is("option", "http-server-close") || s.Is("option", "httpclose")
	switch s.Section {
	case "global":
		f.addGlobal(s)
	case "defaults":
		f.abortonclose = f.abortonclose || s.Is("option", "abortonclose")
		f.closes = f.closes || closes
	case "backend", "listen":
		b := f.backends[s.Name]
		if b == nil {
			b = &ownBackend{}
			f.backends[s.Name] = b
		}
		b.follows = b.follows || s.Is("use-server") && strings.Contains(s.Text(), "txn.pm.server")
		b.closes = b.closes || closes
	}
	if text := s.Text(); !s.Is("use_backend") && strings.Contains(text, "json_query") && strings.Contains(text, "model") {
		f.gates = append(f.gates, s.Line)
	}
	switch {
	case s.Is("timeout", "queue"):
		if d := duration(s.Arg(2)); d > 0 && (f.queue == 0 || d < f.queue) {
			f.queue, f.queueLine = d, s.Line
		}
	case s.Is("log") && strings.Contains(s.Text(), "ring@"+templates.Ring):
		f.ring = true
		f.profile = f.profile || slices.Contains(s.Words, "profile")
	case s.Is("log-format") && strings.HasPrefix(s.Arg(1), templates.FeedMarker+" "):
		f.profile = true
	case s.Is("use_backend") || s.Is("default_backend"):
		f.routes = append(f.routes, s.Arg(1))
	case s.Is("filter", "spoe") && strings.Contains(s.Text(), "pointsman"):
		f.spoe = true
	}
}

func (f *findings) addGlobal(s *Statement) {
	switch s.Words[0] {
	case "chroot":
		f.chroot, f.chrootLine = s.Arg(1), s.Line
	case "tune.bufsize":
		f.bufsize, _ = strconv.Atoi(s.Arg(1))
		f.bufsizeLine = s.Line
	}
}

func (f *findings) advice(w Wanted) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !f.abortonclose && !w.Version.AtLeast(3, 4) {
		say("defaults: no \"option abortonclose\": the replica finishes a request even after its client has left")
	}
	switch size := f.bufsize; {
	case size == 0:
		say("global: no tune.bufsize: only the first 15 KB of a body are seen; want %d", w.Bufsize)
	case size < w.Bufsize:
		say("global, line %d: tune.bufsize is %d, less than the %d that pointsman's own files are rendered for", f.bufsizeLine, size, w.Bufsize)
	}
	if !f.ring {
		say("frontend: no \"log ring@%s\": outcomes are not reported, and each reservation lasts until its lease ends", templates.Ring)
	} else if !f.profile {
		say("frontend: the log to ring@%s has neither a profile nor a log-format that begins with the fields from %s on: outcomes cannot be read", templates.Ring, templates.FeedMarker)
	}
	if !f.reaches(w.Pools) && !f.spoe {
		say("frontend: no use_backend leads to %s: pointsman is never asked", strings.Join(w.Pools, " or "))
	}
	for _, line := range f.gates {
		say("line %d: json_query can see another model than pointsman routes by (a second key, an escaped one, a long body): decide by var(txn.pm.model), after the lines that ask the agent", line)
	}
	if f.queue > 0 && f.queue < w.Queue {
		say("line %d: timeout queue is %v, shorter than the %v for which the admission's ttl lets requests wait", f.queueLine, f.queue, w.Queue)
	}
	for _, name := range w.Own {
		switch b := f.backends[name]; {
		case b == nil:
			say("no backend %s: the pool lists no replicas, so this backend must hold its servers", name)
		case !b.follows:
			say("backend %s: no use-server with txn.pm.server: decisions are not followed", name)
		case !b.closes && !f.closes:
			say("backend %s: no \"option http-server-close\": when a replica dies, some clients get neither an answer nor a log line", name)
		}
	}
	if inside := path.Join(f.chroot, w.Socket); f.chroot != "" && w.Socket != "" && !slices.Contains(w.Inside, inside) {
		say("global, line %d: chroot %s hides the agent's unix socket: have the agent listen on %s too, as pointsman-spoe.socket does for Debian's chroot, or on 127.0.0.1", f.chrootLine, f.chroot, inside)
	}
	return out
}

// duration reads a time as HAProxy writes it, in milliseconds unless it has a
// unit. It returns 0 for anything else.
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
