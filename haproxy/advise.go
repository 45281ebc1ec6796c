package haproxy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// Wanted is what a configuration that pointsman is attached to should have.
type Wanted struct {
	Version  templates.Version
	Bufsize  int               // tune.bufsize, bytes
	Pools    []string          // the backends that requests should reach
	Own      []string          // of these, those whose servers are in the user's configuration alone
	Replicas map[string]string // the pools of the replicas' addresses
	// Listed are, by pool, the names and addresses of the replicas that the configuration
	// lists and that HAProxy balances over.
	Listed map[string]map[string]string
	// Agent and Feed are where the agent listens for questions and for log lines, in the
	// configuration's form: unix:///path or host:port; empty = not to be compared.
	Agent, Feed string

	Socket string        // path of the unix socket that the agent listens on; empty = none
	Inside []string      // further paths that it listens on, such as one in a chroot
	Queue  time.Duration // the longest time that an admission lets requests wait in HAProxy's queues
	// Decision is how long a request may wait for its decision: longer than a hold.
	Decision time.Duration
	// Prefill are the names of the replicas that only compute prompts, by address, and
	// PrefillHeader that of the header which names one; "" = there are none.
	Prefill       map[string]string
	PrefillHeader string
	Ours          string // name of the rendered file, which needs no advice
}

// Advise reads a user's configuration, with the file that is rendered for it, and reports
// what keeps questions or outcomes from pointsman, or its answers from being followed. An
// empty answer means that nothing is missing.
func Advise(files []File, w Wanted) []advice.Finding {
	a := &adviser{Wanted: w, sections: divide(files)}
	if len(files) > 0 {
		a.file = files[0].Name
	}
	a.global()
	a.addresses()
	for _, name := range w.Pools {
		a.pool(name)
	}
	leads := a.leads()
	for _, l := range leads {
		a.frontend(l)
	}
	for _, s := range a.sections {
		b := a.block(s)
		if b == nil {
			continue
		}
		a.renderedBefore(b)
		if s.lines[0].file != w.Ours {
			a.question(b, leads)
		}
	}
	a.bypasses(leads)
	a.prefill()
	return a.out
}

type adviser struct {
	Wanted
	sections []*section
	file     string // the user's first
	out      []advice.Finding
}

func (a *adviser) say(name string, s *section, l *rule, remedy, format string, args ...any) {
	f := advice.Finding{Level: advice.Fault, Rule: name, File: a.file, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
	if l != nil {
		f.File, f.Line = l.file, l.Line
	}
	if s != nil {
		f.Section = s.title()
	}
	if !slices.Contains(a.out, f) {
		a.out = append(a.out, f)
	}
}

// warn is say for findings that do not concern how pointsman is attached, or that may be
// meant.
func (a *adviser) warn(name string, s *section, l *rule, remedy, format string, args ...any) {
	n := len(a.out)
	if a.say(name, s, l, remedy, format, args...); len(a.out) > n {
		a.out[n].Level = advice.Warning
	}
}

// backend returns the section that holds a backend's servers, or nil.
func (a *adviser) backend(name string) *section {
	for _, s := range a.sections {
		if s.balances() && s.name == name {
			return s
		}
	}
	return nil
}

// first returns the first section of a kind, or nil.
func (a *adviser) first(kind string) *section {
	i := slices.IndexFunc(a.sections, func(s *section) bool { return s.kind == kind })
	if i < 0 {
		return nil
	}
	return a.sections[i]
}

// logs are the log lines of all global sections.
func (a *adviser) logs() (list []*rule) {
	for _, s := range a.sections {
		if s.kind == "global" {
			list = append(list, s.own("log")...)
		}
	}
	return list
}

// global examines what applies everywhere.
func (a *adviser) global() {
	var size, queue *rule
	for _, s := range a.sections {
		for i := range s.lines {
			switch l := &s.lines[i]; {
			case l.file == a.Ours:
			case !l.Is("use_backend") && strings.Contains(l.Text(), "json_query") && strings.Contains(l.Text(), "model"):
				a.say("model", s, l, "decide by var(txn.pm.model), after the lines that ask the agent",
					"json_query can see another model than pointsman routes by (a second key, an escaped one, a long body)")
			case l.Is("tune.bufsize") && s.kind == "global":
				size = l
			case l.Is("timeout", "queue"):
				if d := duration(l.Arg(2)); d > 0 && (queue == nil || d < duration(queue.Arg(2))) {
					queue = l
				}
			}
		}
	}
	global := a.first("global")
	if global == nil {
		global = &section{kind: "global"}
	}
	if size == nil {
		a.say("bufsize", global, nil, fmt.Sprintf("add tune.bufsize %d", a.Bufsize), "no tune.bufsize: only the first 15 KB of a body are seen")
	} else if n, _ := strconv.Atoi(size.Arg(1)); n < a.Bufsize {
		a.say("bufsize", global, size, fmt.Sprintf("set tune.bufsize %d", a.Bufsize),
			"tune.bufsize is %d, less than the %d that pointsman's own files are rendered for", n, a.Bufsize)
	}
	if chroot := a.chroot(); chroot != nil && a.Socket != "" {
		if inside := path.Join(chroot.Arg(1), a.Socket); !slices.Contains(a.Inside, inside) {
			a.say("chroot", global, chroot, fmt.Sprintf("have the agent listen on %s too, as pointsman-spoe.socket does for Debian's chroot, or on 127.0.0.1", inside),
				"chroot %s hides the agent's unix socket", chroot.Arg(1))
		}
	}
	if queue != nil && duration(queue.Arg(2)) < a.Queue {
		a.say("queue-timeout", nil, queue, fmt.Sprintf("raise it to %v", a.Queue),
			"timeout queue is %v, shorter than the %v for which the admission's ttl lets requests wait", duration(queue.Arg(2)), a.Queue)
	}
}

// pool examines the backend of a pool.
func (a *adviser) pool(name string) {
	b := a.backend(name)
	if b == nil {
		if slices.Contains(a.Own, name) {
			a.say("backend", nil, nil, "add it, or list the replicas", "no backend %s: the pool lists no replicas, so this backend must hold its servers", name)
		}
		return
	}
	if b.lines[0].file == a.Ours {
		return
	}
	a.compare(b)
	i := slices.IndexFunc(b.lines, func(l rule) bool {
		return l.Is("use-server") && strings.Contains(l.Text(), "txn.pm.server")
	})
	if i < 0 {
		a.say("not-followed", b, &b.lines[0], "add use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }",
			"no use-server with txn.pm.server: decisions are not followed")
		return
	}
	for j := range b.lines[:i] {
		l := &b.lines[j]
		if !l.Is("use-server") || strings.Contains(l.Text(), "txn.pm.") {
			continue
		}
		remedy := fmt.Sprintf("move it below line %d", b.lines[i].Line)
		if cond := b.condition(l, 2); cond != "" && !strings.EqualFold(cond, "if true") {
			a.warn("own-server-first", b, l, remedy+" unless that is meant", "this use-server comes before the decision's: where its condition holds, it overrides the decision")
			continue
		}
		a.say("not-followed", b, l, remedy, "this use-server comes before the decision's and overrides it")
	}
	if !b.option("http-server-close") && !b.option("httpclose") && !b.reuses() {
		a.say("server-close", b, &b.lines[0], "add option http-server-close",
			"no \"option http-server-close\": when a replica dies, some clients get neither an answer nor a log line")
	}
}

// lead is a frontend, or listen section, that leads to a pool.
type lead struct {
	*section
	route *rule
	pool  string // "" = the decision's
}

// leads returns the frontends that lead to each pool, and reports pools that none
// leads to.
func (a *adviser) leads() (list []lead) {
	reached := map[string]bool{}
	var dynamic []lead
	for _, s := range a.sections {
		if !s.receives() {
			continue
		}
		if s.kind == "listen" && slices.Contains(a.Pools, s.name) {
			list = append(list, lead{s, &s.lines[0], s.name})
			reached[s.name] = true
		}
		for _, r := range s.routes() {
			switch to := r.Arg(1); {
			case strings.Contains(to, "txn.pm.pool"):
				list = append(list, lead{s, r, ""})
				reached[""] = true
			case slices.Contains(a.Pools, to):
				list = append(list, lead{s, r, to})
				reached[to] = true
			case strings.Contains(to, "%["):
				reached[""] = true // a map may lead to any of them
				dynamic = append(dynamic, lead{s, r, ""})
			}
		}
	}
	var missing []string
	for _, p := range a.Pools {
		if reached[p] {
			continue
		}
		missing = append(missing, p)
		// No route names it: a map or a variable must.
		for _, d := range dynamic {
			if a.asks(p) {
				list = append(list, lead{d.section, d.route, p})
			}
		}
	}
	if len(missing) > 0 && !reached[""] {
		a.say("no-route", &section{kind: "frontend"}, nil, fmt.Sprintf("add use_backend %s if { path_beg /v1/ }", missing[0]),
			"no use_backend leads to %s: pointsman is never asked", strings.Join(missing, " or "))
	}
	return list
}

// frontend examines one frontend that leads to a pool.
func (a *adviser) frontend(l lead) {
	if l.mode() == "tcp" {
		a.say("mode", l.section, l.route, "set mode http", "mode tcp: HAProxy does not read requests here, so pointsman cannot be asked")
		return
	}
	own := a.block(l.section)
	if own == nil && l.pool != "" {
		if b := a.backend(l.pool); b == nil || a.block(b) == nil {
			a.say("not-asked", l.section, l.route, "put the lines with send-spoe-group here: `pointsman render haproxy --attach` prints them",
				"requests for %s go there without a question: neither this %s nor the backend has the SPOE filter and send-spoe-group", l.pool, l.kind)
		}
	}
	a.fed(l)
	a.captures(l)
	if !a.Version.AtLeast(3, 3) && !l.option("abortonclose") {
		b := a.backend(l.pool)
		if !a.Version.AtLeast(3, 0) || b == nil || !b.option("abortonclose") {
			d := l.defaults
			if d == nil {
				d = &section{kind: "defaults"}
			}
			a.say("abortonclose", d, nil, "add option abortonclose", "no \"option abortonclose\": the replica finishes a request even after its client has left")
		}
	}
	a.earlier(l)
}

// fed examines whether the frontend's log lines reach the feed.
func (a *adviser) fed(l lead) {
	isRing := func(l *rule) bool { return strings.Contains(l.Text(), "ring@"+templates.Ring) }
	logs := l.logs(a.logs())
	i := slices.IndexFunc(logs, isRing)
	if i < 0 {
		remedy := "add the log line that `pointsman render haproxy --attach` prints"
		for _, s := range a.sections {
			if own := s.own("log"); s.receives() && s != l.section && slices.ContainsFunc(own, isRing) {
				at := own[slices.IndexFunc(own, isRing)]
				remedy = fmt.Sprintf("it is in %s at %s:%d: move it here", s.title(), at.file, at.Line)
			}
		}
		a.say("no-feed", l.section, &l.lines[0], remedy,
			"no \"log ring@%s\" in the frontend that leads to %s: outcomes are not reported, and each reservation lasts until its lease ends",
			templates.Ring, orPools(l.pool))
		return
	}
	format := l.last("log-format")
	if !slices.Contains(logs[i].Words, "profile") && (format == nil || !strings.HasPrefix(format.Arg(1), templates.FeedMarker+" ")) {
		a.say("feed-format", l.section, logs[i], "add `profile pointsman` to it from 3.2 on, else put the fields in front of log-format",
			"the log to ring@%s has neither a profile nor a log-format that begins with the fields from %s on: outcomes cannot be read", templates.Ring, templates.FeedMarker)
	}
	a.logsEnds(l, logs[i])
	if l.option("dontlog-normal") {
		a.say("no-feed", l.section, l.last("option", "dontlog-normal"), "add no option dontlog-normal to this frontend",
			"option dontlog-normal: requests that end well are not reported")
	}
}

func orPools(pool string) string {
	if pool == "" {
		return "the pools"
	}
	return pool
}

// replicaOf names a pool one of whose replicas is a server of the backend.
func (a *adviser) replicaOf(backend string) (pool string) {
	if b := a.backend(backend); b != nil {
		for address := range b.servers() {
			if p := a.Replicas[address]; p != "" {
				return p
			}
		}
	}
	return ""
}

// bypasses reports frontends that lead to the replicas but to no pool.
func (a *adviser) bypasses(leads []lead) {
	for _, s := range a.sections {
		if !s.receives() || slices.ContainsFunc(leads, func(l lead) bool { return l.section == s }) {
			continue
		}
		for _, r := range s.routes() {
			if p := a.replicaOf(r.Arg(1)); p != "" && !a.asks(r.Arg(1)) {
				a.say("bypass", s, r, fmt.Sprintf("lead to backend %s instead", p), "%s leads to replicas of pool %s without asking pointsman", r.Text(), p)
			}
		}
	}
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
