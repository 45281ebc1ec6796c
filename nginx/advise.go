package nginx

import (
	"fmt"
	"slices"
	"strings"

	"pointsman/templates"
)

// Advise reads a user's nginx.conf and everything that it includes. It says what
// pointsman needs and does not find there, and what will not work as it looks. An
// empty answer means that nothing is missing. feed is the configured address of
// the feed.
func Advise(file, feed string) ([]string, error) {
	root, err := load(file)
	if err != nil {
		return nil, err
	}
	a := &advice{feed: "syslog:server=" + strings.TrimPrefix(feed, "tcp://")}
	var upstream, target bool
	var asks []*Directive
	root.Walk(func(d *Directive) {
		switch {
		case d.Name == "upstream" && slices.Contains(d.Args, templates.NginxAgent):
			upstream = true
		case d.Name == "location" && leads(d, templates.NginxTarget):
			target = true
			a.logged(d)
		case d.Name == "try_files" && leads(d, templates.NginxAsk),
			d.Name == "proxy_pass" && slices.Contains(d.Args, "http://"+templates.NginxAgent) && !strings.HasPrefix(strings.Join(d.Parent.Args, ""), "@pm_"):
			asks = append(asks, d.Parent)
		}
	})
	if !upstream {
		a.say("http: %s is not included", templates.NginxHTTPFile)
	}
	if !target {
		a.say("server: %s is not included", templates.NginxServerFile)
	}
	if len(asks) == 0 {
		a.say("location: none leads to %s, so pointsman is never asked", templates.NginxAsk)
	}
	for _, d := range asks {
		a.question(d)
	}
	return a.out, nil
}

// leads reports whether an argument of d is that named location, or the one of a
// set with a number.
func leads(d *Directive, location string) bool {
	return slices.ContainsFunc(d.Args, func(a string) bool { return a == location || strings.HasPrefix(a, location+"_") })
}

type advice struct {
	feed string
	out  []string
}

func (a *advice) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(a.out, text) {
		a.out = append(a.out, text)
	}
}

// question examines one location that asks pointsman, through ours or by itself.
func (a *advice) question(d *Directive) {
	server := d
	for server.Parent != nil && server.Name != "server" {
		server = server.Parent
	}
	if len(d.Own("proxy_pass")) > 0 {
		if l := d.Effective("proxy_request_buffering"); len(l) > 0 && slices.Contains(l[0].Args, "off") {
			a.say("%s: proxy_request_buffering is off: the body is lost on its way to the replica", l[0].At())
		}
		if len(d.Effective("client_body_buffer_size")) == 0 {
			a.say("%s: no client_body_buffer_size: each body of more than 16 KB goes through a file", d.At())
		}
		a.logged(d)
	}
	if limit := d.Effective("client_max_body_size"); len(limit) == 0 {
		a.say("%s: no client_max_body_size: nginx refuses bodies of more than 1 MB", server.At())
	} else if len(server.Effective("client_max_body_size")) == 0 {
		a.say("%s: this client_max_body_size does not apply to chunked bodies: for them the server's limit of 1 MB applies; set it in the server", limit[0].At())
	}
	for _, l := range d.Own("access_log") {
		a.say("%s: requests that pointsman is asked about are not logged here, but in the log of their server", l.At())
	}
	for _, i := range d.Own("if") {
		if len(i.Own("return"))+len(i.Own("rewrite")) == 0 {
			a.say("%s: where this if matches, nginx ignores try_files and does not ask pointsman", i.At())
		}
	}
	a.lost(d, server)
}

// lost reports which of a location's own directives do not take effect, because
// requests and answers go through locations of ours.
func (a *advice) lost(d, server *Directive) {
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
				a.say("%s: %s %s has no effect on requests that pointsman is asked about: put it into %s, next to %s", e.At(),
					e.Name, e.Args[0], strings.Replace(templates.NginxHeaders, "*", "", 1), templates.NginxServerFile)
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
func (a *advice) logged(d *Directive) {
	for _, l := range d.Effective("error_log") {
		if len(l.Args) > 0 && strings.HasPrefix(l.Args[0], a.feed+",") && !slices.Contains(strings.Split(l.Args[0], ","), "tag="+templates.NginxErrorTag) {
			a.say("%s: lines of this error_log are ignored: they need tag=%s, which tells them from those of the access_log", l.At(), templates.NginxErrorTag)
		}
	}
	logs := d.Effective("access_log")
	for _, l := range logs {
		if len(l.Args) > 0 && strings.HasPrefix(l.Args[0], a.feed+",") {
			return
		}
	}
	if len(logs) == 0 {
		a.say("http: no access_log leads to the feed at %s: outcomes are not reported, and each reservation lasts until its lease ends", a.feed)
		return
	}
	a.say("%s: this access_log replaces the feed's, which is not inherited: add `access_log %s,nohostname,tag=%s pointsman if=$pm_feed;` here too", logs[0].At(), a.feed, templates.NginxTag)
}
