package nginx

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"pointsman/advice"
	"pointsman/templates"
)

// Advise reads a user's nginx.conf and everything that it includes. It reports what
// pointsman needs but does not find there, and directives that do not work as they look. An
// empty answer means that nothing is missing. agent and feed are the addresses that the
// agent listens on, agent may be empty.
func Advise(file, agent, feed string) ([]advice.Finding, error) {
	root, err := load(file)
	if err != nil {
		return nil, err
	}
	a := &adviser{feed: "syslog:server=" + strings.TrimPrefix(feed, "tcp://"), file: file, upstreams: map[string]*Directive{}}
	var upstream bool
	var asks []*Directive
	root.Walk(func(d *Directive) {
		switch {
		case d.Name == "upstream" && len(d.Args) > 0:
			a.upstreams[d.Args[0]] = d
			upstream = upstream || slices.Contains(d.Args, templates.NginxAgent)
		case d.Name == "location" && leads(d, templates.NginxTarget):
			a.targets = append(a.targets, d)
			a.logged(d)
		case d.Name == "try_files" && leads(d, templates.NginxAsk),
			d.Name == "proxy_pass" && slices.Contains(d.Args, "http://"+templates.NginxAgent) && !strings.HasPrefix(strings.Join(d.Parent.Args, ""), "@pm_"):
			asks = append(asks, d.Parent)
		}
	})
	if !upstream {
		a.say("no-http-file", nil, "http", "include it", "%s is not included", templates.NginxHTTPFile)
	}
	if len(a.targets) == 0 {
		a.say("no-server-file", nil, "server", "include it in the server of your LLM location", "%s is not included", templates.NginxServerFile)
	}
	if len(asks) == 0 {
		a.say("not-asked", nil, "location", fmt.Sprintf("put `set $pm_own YOUR_UPSTREAM; try_files /.pointsman %s;` in the place of your proxy_pass", templates.NginxAsk),
			"none leads to %s, so pointsman is never asked", templates.NginxAsk)
	}
	a.asked(agent)
	for _, d := range asks {
		a.question(d)
		a.placed(d)
		a.owned(d)
		a.guarded(d)
	}
	return a.out, nil
}

// again is the remedy where the files for nginx and pointsman.yaml differ.
const again = "attach or render again and reload nginx, unless a container or a forwarded port leads there"

// asked reports questions that go elsewhere than where the agent listens, as after a change
// of listen without attaching again. Hosts are not compared: the agent may listen on all of
// its own.
func (a *adviser) asked(agent string) {
	u := a.upstreams[templates.NginxAgent]
	if u == nil || agent == "" {
		return
	}
	socket, isUnix := strings.CutPrefix(agent, "unix://")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(agent, "tcp://"))
	var first *Directive
	for _, l := range u.Own("server") {
		if len(l.Args) == 0 || slices.Contains(l.Args, "down") {
			continue
		}
		path, toUnix := strings.CutPrefix(l.Args[0], "unix:")
		if isUnix && toUnix && path == socket || !isUnix && !toUnix && (err != nil || strings.HasSuffix(l.Args[0], ":"+port) || !strings.Contains(l.Args[0], ":")) {
			return
		}
		if first == nil {
			first = l
		}
	}
	if first != nil {
		a.warn("address", first, "", again, "questions go to %s, and the agent listens on %s (listen.nginx): it is not asked", first.Args[0], agent)
	}
}

// User is the account that nginx's workers run as, "" if the file does not name it.
func User(file string) string {
	root, err := load(file)
	if err != nil {
		return ""
	}
	for _, d := range root.Own("user") {
		if len(d.Args) > 0 {
			return d.Args[0]
		}
	}
	return ""
}

// leads reports whether an argument of d is that named location, or the one of a
// set with a number.
func leads(d *Directive, location string) bool {
	return slices.ContainsFunc(d.Args, func(a string) bool { return a == location || strings.HasPrefix(a, location+"_") })
}

type adviser struct {
	feed, file string
	level      string // advice.Fault unless set
	upstreams  map[string]*Directive
	targets    []*Directive // the locations that requests reach the replicas from
	out        []advice.Finding
}

// say reports a finding at d; with d nil it is about something missing from the file.
func (a *adviser) say(rule string, d *Directive, section, remedy, format string, args ...any) {
	f := advice.Finding{Level: advice.Fault, Rule: rule, File: a.file, Section: section, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
	if a.level != "" {
		f.Level = a.level
	}
	if d != nil {
		f.File, f.Line = d.File, d.Line
	}
	if !slices.Contains(a.out, f) {
		a.out = append(a.out, f)
	}
}

// warn is say for findings that do not concern how pointsman is attached, or that may be
// meant.
func (a *adviser) warn(rule string, d *Directive, section, remedy, format string, args ...any) {
	defer func(level string) { a.level = level }(a.level)
	a.level = advice.Warning
	a.say(rule, d, section, remedy, format, args...)
}

// within is the nearest enclosing block of the name, or the root.
func (d *Directive) within(name string) *Directive {
	for d.Parent != nil && d.Name != name {
		d = d.Parent
	}
	return d
}

// placed reports a location that asks, but is in a server without our locations.
func (a *adviser) placed(d *Directive) {
	server := d.within("server")
	if len(a.targets) == 0 || server.Name != "server" || slices.ContainsFunc(a.targets, func(t *Directive) bool { return t.within("server") == server }) {
		return
	}
	other := a.targets[0].within("server")
	a.say("wrong-server", d, "location "+strings.Join(d.Args, " "), "include it in the server at "+server.At(),
		"%s is included in the server at %s, not in this location's: each request gets 500", templates.NginxServerFile, other.At())
}

// ownVariables are the variables that locations set; the last two are set in our files.
var ownVariables = []string{"$pm_own", "$pm_pool", "$pm_set", "$pm_next"}

// asking is the named location of ours that d leads to, or nil.
func (d *Directive) asking() (found *Directive) {
	for _, try := range d.Own("try_files") {
		d.within("server").Walk(func(l *Directive) {
			if l.Name == "location" && len(l.Args) == 1 && leads(l, templates.NginxAsk) && slices.Contains(try.Args, l.Args[0]) {
				found = l
			}
		})
	}
	return found
}

// owned examines what serves when there is no decision.
func (a *adviser) owned(d *Directive) {
	section := "location " + strings.Join(d.Args, " ")
	for b := d; b != nil; b = b.Parent {
		for _, set := range b.Own("set") {
			if len(set.Args) != 2 || !strings.HasPrefix(set.Args[0], "$pm_") {
				continue
			}
			if !slices.Contains(ownVariables, set.Args[0]) {
				a.say("pm-own", set, section, "write $pm_own", "set %s: pointsman has no such variable to set, so your own upstream does not serve when the agent is down", set.Args[0])
				continue
			}
			if set.Args[0] == "$pm_own" {
				a.resolves(set, section)
			}
		}
	}
}

// resolves reports a $pm_own that nginx could not reach.
func (a *adviser) resolves(set *Directive, section string) {
	own := set.Args[1]
	bare := own
	if host, _, err := net.SplitHostPort(own); err == nil {
		bare = host
	}
	switch {
	case strings.Contains(own, "://"):
		a.say("pm-own", set, section, "write it without "+own[:strings.Index(own, "://")+3], "$pm_own is %s: nginx puts http:// before it, so every request without a decision gets 502", own)
	case a.upstreams[own] != nil, strings.Contains(own, "$"), net.ParseIP(strings.Trim(bare, "[]")) != nil, strings.HasPrefix(own, "unix:"):
	case len(set.Effective("resolver")) > 0 && strings.Contains(bare, "."):
	default:
		var names []string
		for name := range a.upstreams {
			if name != templates.NginxAgent && !strings.HasPrefix(name, "pm~") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		remedy := "name one of your upstreams"
		if len(names) > 0 {
			remedy += ": " + strings.Join(names, ", ")
		}
		a.say("pm-own", set, section, remedy, "$pm_own is %s, but there is no upstream of this name: when the agent is down, every request gets 502", own)
	}
}

// question examines one location that asks pointsman, through one of ours or directly.
func (a *adviser) question(d *Directive) {
	server := d.within("server")
	if len(d.Own("proxy_pass")) > 0 {
		if l := d.Effective("proxy_request_buffering"); len(l) > 0 && slices.Contains(l[0].Args, "off") {
			a.say("request-buffering", l[0], "", "turn it on", "proxy_request_buffering is off: the body is lost on its way to the replica")
		}
		if len(d.Effective("client_body_buffer_size")) == 0 {
			a.say("body-buffer", d, "", "set client_body_buffer_size 1m", "no client_body_buffer_size: each body of more than 16 KB goes through a file")
		}
		a.logged(d)
	}
	// The lines that attach writes repeat those of the location.
	ask := d.asking()
	repeats := func(name string) bool { return ask != nil && len(ask.Own(name)) > 0 }
	if limit := d.Effective("client_max_body_size"); len(limit) == 0 {
		a.warn("max-body", server, "", "set client_max_body_size 100m in the server", "no client_max_body_size: nginx refuses bodies of more than 1 MB")
	} else if len(server.Effective("client_max_body_size")) == 0 && !repeats("client_max_body_size") {
		a.say("max-body", limit[0], "", "set it in the server", "this client_max_body_size does not apply to chunked bodies: for them the server's limit of 1 MB applies")
	}
	for _, l := range d.Own("access_log") {
		if repeats("access_log") {
			break
		}
		a.say("own-log", l, "", "move it to the server, next to the feed's", "requests that pointsman is asked about are not logged here, but in the log of their server")
	}
	for _, i := range d.Own("if") {
		if len(i.Own("return"))+len(i.Own("rewrite")) == 0 {
			a.say("if", i, "", "use a map, or return", "where this if matches, nginx ignores try_files and does not ask pointsman")
		}
	}
	a.lost(d, server)
}

// lost reports which of a location's own directives do not take effect, because
// requests and answers go through locations of ours.
func (a *adviser) lost(d, server *Directive) {
	kept := map[string]bool{}
	server.Walk(func(l *Directive) {
		if l.Name == "location" && leads(l, templates.NginxTarget) {
			for _, e := range l.Block {
				kept[subject(e)] = true
			}
		}
	})
	report := func(list []*Directive) {
		for _, e := range list {
			if len(e.Args) > 0 && !kept[subject(e)] && !slices.ContainsFunc(passed, func(p string) bool { return strings.EqualFold(p, e.Args[0]) }) {
				a.say("lost", e, "", fmt.Sprintf("put it into %s, next to %s", strings.Replace(templates.NginxHeaders, "*", "", 1), templates.NginxServerFile),
					"%s %s has no effect on requests that pointsman is asked about", e.Name, e.Args[0])
			}
		}
	}
	// Our locations have directives of this name, so they inherit none.
	report(d.Effective("proxy_set_header"))
	for _, name := range []string{"add_header", "proxy_hide_header", "proxy_pass_header", "sub_filter", "limit_rate"} {
		report(d.Own(name))
	}
}

// subject is the name of a directive with its first argument: the header or text
// that it is about.
func subject(d *Directive) string {
	return strings.ToLower(d.Name + " " + strings.Join(d.Args[:min(1, len(d.Args))], ""))
}

// passed are the headers that our own locations set.
var passed = []string{"Host", "Connection", "Upgrade"}

// logged reports a block whose effective logs do not include the feed.
func (a *adviser) logged(d *Directive) {
	for _, l := range d.Effective("error_log") {
		if len(l.Args) > 0 && strings.HasPrefix(l.Args[0], a.feed+",") && !slices.Contains(strings.Split(l.Args[0], ","), "tag="+templates.NginxErrorTag) {
			a.say("error-log", l, "", fmt.Sprintf("they need tag=%s, which tells them from those of the access_log", templates.NginxErrorTag), "lines of this error_log are ignored")
		}
	}
	logs := d.Effective("access_log")
	for _, l := range logs {
		if len(l.Args) > 0 && strings.HasPrefix(l.Args[0], a.feed+",") {
			return
		}
	}
	if len(logs) == 0 {
		a.say("no-feed", nil, "http", "include "+templates.NginxHTTPFile, "no access_log leads to the feed at %s: outcomes are not reported, and each reservation lasts until its lease ends", a.feed)
		return
	}
	for _, l := range logs {
		if len(l.Args) > 0 && slices.Contains(strings.Split(l.Args[0], ","), "tag="+templates.NginxTag) {
			to, _, _ := strings.Cut(strings.TrimPrefix(l.Args[0], "syslog:server="), ",")
			a.say("no-feed", l, "", again, "log lines go to %s, and the agent listens on %s (listen.feed): outcomes are not reported", to, strings.TrimPrefix(a.feed, "syslog:server="))
			return
		}
	}
	a.say("no-feed", logs[0], "", fmt.Sprintf("add `access_log %s,nohostname,tag=%s pointsman if=$pm_feed;` here too", a.feed, templates.NginxTag), "this access_log replaces the feed's, which is not inherited")
}
