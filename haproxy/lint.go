package haproxy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// Release is an HAProxy with its patch level, which is -1 when not known.
type Release struct {
	templates.Version
	Patch int
}

// longest is how long an engine may take to send the next byte: a long prompt
// that waits behind others.
const longest = 5 * time.Minute

// Lint warns about settings that hurt LLM traffic, with or without pointsman. backends are
// those of engines; empty = those that look like it.
func Lint(files []File, r Release, backends []string) []advice.Finding {
	a := &adviser{sections: divide(files)}
	for _, s := range a.sections {
		if s.balances() && (slices.Contains(backends, s.name) || len(backends) == 0 && a.looksLLM(s)) {
			a.lint(s, r)
		}
	}
	for i := range a.out {
		a.out[i].Level = advice.Warning
	}
	return a.out
}

// looksLLM reports whether a section seems to hold the servers of engines.
func (a *adviser) looksLLM(s *section) bool {
	servers := s.own("server")
	if len(servers) == 0 || s.mode() != "http" {
		return false
	}
	if llmName.MatchString(s.name) {
		return true
	}
	for _, l := range servers {
		if llmPort.MatchString(l.Arg(2)) || llmName.MatchString(l.Arg(1)) {
			return true
		}
	}
	for _, f := range a.sections {
		for _, r := range f.own("use_backend", s.name) {
			if llmPath.MatchString(f.condition(r, 2)) {
				return true
			}
		}
	}
	return false
}

// place is where a setting that is missing or inherited is reported: at its own
// line, or at the section's.
func (s *section) place(l *rule) *rule {
	if l != nil {
		return l
	}
	return &s.lines[0]
}

var maxconn = regexp.MustCompile(`(^| )maxconn [1-9]`)

// lint examines a backend of engines.
func (a *adviser) lint(b *section, r Release) {
	servers := b.own("server")
	queued := slices.ContainsFunc(servers, func(l *rule) bool { return maxconn.MatchString(l.Text()) })
	if l := b.last("default-server"); l != nil {
		queued = queued || maxconn.MatchString(l.Text())
	}
	switch l := b.last("timeout", "server"); {
	case l == nil:
		a.say("timeout-server", b, &b.lines[0], "add timeout server 600s", "no timeout server: a replica that hangs holds its requests for ever")
	case duration(l.Arg(2)) < longest:
		a.say("timeout-server", b, l, "raise it to 600s in this backend",
			"timeout server is %v: a request whose first token, or next one, takes longer ends as 504 or is cut", duration(l.Arg(2)))
	}
	if queued && b.last("timeout", "queue") == nil {
		a.say("timeout-queue", b, &b.lines[0], "add timeout queue 60s", "servers have a maxconn, but there is no timeout queue: a request waits no longer than timeout connect, then gets 503")
	}
	if !r.AtLeast(3, 3) && !b.option("abortonclose") {
		a.say("abortonclose", b, &b.lines[0], "add option abortonclose to the defaults", "no option abortonclose: a request whose client has left runs to its end on the engine")
	}
	if !b.option("http-server-close") && !b.option("httpclose") && !b.reuses() {
		a.say("server-close", b, &b.lines[0], "add option http-server-close",
			"connections to the engines are kept for reuse, and uvicorn (vLLM, SGLang) closes idle ones after 5 s: requests that meet this end as 502 or without an answer")
	}
	if !b.option("http-no-delay") {
		a.say("no-delay", b, &b.lines[0], "add option http-no-delay", "no option http-no-delay: chunks of a stream may wait up to 200 ms")
	}
	a.balance(b, servers, r)
	if l := b.last("retry-on"); l != nil && !b.reuses() {
		for _, w := range l.Words[1:] {
			if w != "conn-failure" && w != "none" {
				a.say("retry-on", b, l, "use retry-on conn-failure", "retry-on %s repeats requests that an engine may have begun", w)
				break
			}
		}
	}
	a.spoeQueue(b, queued, r)
	a.bodies(b)
}

// balance warns about balancing that ignores load and caches.
func (a *adviser) balance(b *section, servers []*rule, r Release) {
	if len(servers) < 2 || a.block(b) != nil || len(b.own("use-server")) > 0 {
		return // pointsman decides
	}
	l := b.last("balance")
	how := "roundrobin"
	switch {
	case l != nil:
		how = l.Arg(1)
	case r.AtLeast(3, 3):
		how = "random"
	}
	if how == "roundrobin" || how == "static-rr" || strings.HasPrefix(how, "random") {
		a.say("balance", b, b.place(l), "use balance leastconn, or attach pointsman",
			"balance %s over engines with prefix caches: each turn of a conversation meets a cold cache, and long prompts pile up", how)
	}
}

// spoeQueue warns about https://github.com/haproxy/haproxy/issues/3290.
func (a *adviser) spoeQueue(b *section, queued bool, r Release) {
	if r.Version != (templates.Version{Major: 3, Minor: 2}) || r.Patch < 0 || r.Patch > 13 || !queued {
		return
	}
	if l := b.own("filter", "spoe"); len(l) > 0 {
		a.say("spoe-queue", b, l[0], "update to 3.2.14, or take maxconn off the servers",
			"HAProxy %s.%d: with an SPOE filter in a backend whose servers have a maxconn, some requests stay in the queue until timeout queue", r.Version, r.Patch)
	}
}

// bodies warns about bodies that are inspected but do not fit into the buffer.
func (a *adviser) bodies(b *section) {
	for _, s := range a.sections {
		if s.kind == "global" && len(s.own("tune.bufsize")) > 0 {
			return
		}
	}
	for _, s := range a.sections {
		leads := s == b || s.receives() && slices.ContainsFunc(s.routes(), func(r *rule) bool { return r.Arg(1) == b.name || strings.Contains(r.Arg(1), "%[") })
		for i := range s.lines {
			if l := &s.lines[i]; leads && strings.Contains(l.Text(), "req.body") {
				a.say("bufsize", s, l, "set tune.bufsize 262144 in global", "a rule reads the body, of which the default buffer holds 15 KB")
				return
			}
		}
	}
}

// Backends names the sections of files that hold servers.
func Backends(files []File) (names []string) {
	seen := map[string]bool{}
	for _, s := range divide(files) {
		if s.balances() {
			seen[s.name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// HasAgent reports whether files define the agent's backend and the ring.
func HasAgent(files []File) bool {
	return slices.Contains(Backends(files), templates.AgentBackend)
}

// String is the release as HAProxy writes it.
func (r Release) String() string {
	if r.Patch < 0 {
		return r.Version.String()
	}
	return fmt.Sprintf("%s.%d", r.Version, r.Patch)
}

var releasePattern = regexp.MustCompile(`version (\d+)\.(\d+)\.(\d+)`)

// ParseRelease reads the output of haproxy -v. Output that cannot be read is release 0.0.
func ParseRelease(s string) Release {
	m := releasePattern.FindStringSubmatch(s)
	if m == nil {
		return Release{Patch: -1}
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	return Release{templates.Version{Major: n[0], Minor: n[1]}, n[2]}
}
