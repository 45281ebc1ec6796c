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
	var asks []*directive
	root.walk(func(d *directive) {
		switch {
		case d.name == "upstream" && slices.Contains(d.args, templates.NginxAgent):
			upstream = true
		case d.name == "location" && slices.Contains(d.args, templates.NginxTarget):
			target = true
			a.logged(d)
		case d.name == "try_files" && slices.Contains(d.args, templates.NginxAsk),
			d.name == "proxy_pass" && slices.Contains(d.args, "http://"+templates.NginxAgent) && !strings.HasPrefix(strings.Join(d.parent.args, ""), "@pm_"):
			asks = append(asks, d.parent)
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
func (a *advice) question(d *directive) {
	server := d
	for server.parent != nil && server.name != "server" {
		server = server.parent
	}
	if len(d.own("proxy_pass")) > 0 {
		if l := d.effective("proxy_request_buffering"); len(l) > 0 && slices.Contains(l[0].args, "off") {
			a.say("%s: proxy_request_buffering is off: the body is lost on its way to the replica", l[0].at())
		}
		if len(d.effective("client_body_buffer_size")) == 0 {
			a.say("%s: no client_body_buffer_size: each body of more than 16 KB goes through a file", d.at())
		}
		a.logged(d)
	}
	if limit := d.effective("client_max_body_size"); len(limit) == 0 {
		a.say("%s: no client_max_body_size: nginx refuses bodies of more than 1 MB", server.at())
	} else if len(server.effective("client_max_body_size")) == 0 {
		a.say("%s: this client_max_body_size does not apply to chunked bodies: for them the server's limit of 1 MB applies; set it in the server", limit[0].at())
	}
	for _, l := range d.own("access_log") {
		a.say("%s: requests that pointsman is asked about are not logged here, but in the log of their server", l.at())
	}
	for _, i := range d.own("if") {
		if len(i.own("return"))+len(i.own("rewrite")) == 0 {
			a.say("%s: where this if matches, nginx ignores try_files and does not ask pointsman", i.at())
		}
	}
	a.lost(d, server)
}

// lost reports which of a location's own directives do not take effect, because
// requests and answers go through locations of ours.
func (a *advice) lost(d, server *directive) {
	kept := map[string]bool{}
	server.walk(func(l *directive) {
		if l.name == "location" && slices.Contains(l.args, templates.NginxTarget) {
			for _, e := range l.block {
				kept[subject(e)] = true
			}
		}
	})
	report := func(list []*directive) {
		for _, e := range list {
			if len(e.args) > 0 && !kept[subject(e)] && !slices.ContainsFunc(passed, func(p string) bool { return strings.EqualFold(p, e.args[0]) }) {
				a.say("%s: %s %s has no effect on requests that pointsman is asked about: put it into %s, next to %s", e.at(),
					e.name, e.args[0], strings.Replace(templates.NginxHeaders, "*", "", 1), templates.NginxServerFile)
			}
		}
	}
	// Our locations have directives of this name, so they inherit none.
	report(d.effective("proxy_set_header"))
	for _, name := range []string{"add_header", "proxy_hide_header", "proxy_pass_header", "sub_filter", "limit_rate"} {
		report(d.own(name))
	}
}

// subject is the name of a directive with its first argument: the header or text
// that it is about.
func subject(d *directive) string {
	return strings.ToLower(d.name + " " + strings.Join(d.args[:min(1, len(d.args))], ""))
}

// passed are the headers that our own locations set.
var passed = []string{"Host", "Connection", "Upgrade"}

// logged reports a block whose effective logs do not include the feed.
func (a *advice) logged(d *directive) {
	for _, l := range d.effective("error_log") {
		if len(l.args) > 0 && strings.HasPrefix(l.args[0], a.feed+",") && !slices.Contains(strings.Split(l.args[0], ","), "tag="+templates.NginxErrorTag) {
			a.say("%s: lines of this error_log are ignored: they need tag=%s, which tells them from those of the access_log", l.at(), templates.NginxErrorTag)
		}
	}
	logs := d.effective("access_log")
	for _, l := range logs {
		if len(l.args) > 0 && strings.HasPrefix(l.args[0], a.feed+",") {
			return
		}
	}
	if len(logs) == 0 {
		a.say("http: no access_log leads to the feed at %s: outcomes are not reported, and each reservation lasts until its lease ends", a.feed)
		return
	}
	a.say("%s: this access_log replaces the feed's, which is not inherited: add `access_log %s,nohostname,tag=%s pointsman if=$pm_feed;` here too", logs[0].at(), a.feed, templates.NginxTag)
}
