// Package inject puts faults into configurations that pointsman is attached to, as
// people make them. Tests look whether check names them, and the running agent.
package inject

import (
	"regexp"
	"strings"
)

// Fault is one way to break a configuration.
type Fault struct {
	Name   string
	Rules  []string // of the findings that name it, any of which will do
	Report string   // what the running agent says about it
	// Edit puts it in. What it cannot break it returns as it is.
	Edit func(text string) string
}

const (
	send = "http-request send-spoe-group"
	wait = "http-request wait-for-body"
	rid  = "http-request set-var(txn.pm.rid)"
)

// HAProxy are the faults of a configuration that attach wrote.
var HAProxy = []Fault{
	{"no send-spoe-group", []string{"no-send"}, "without a question", drop(send)},
	{"no wait-for-body", []string{"no-body"}, "bodies were cut", drop(wait)},
	{"wait-for-body too late", []string{"no-body"}, "bodies were cut", after(wait, send)},
	{"no rid", []string{"no-rid"}, "without an id", drop(rid)},
	{"rid too late", []string{"no-rid"}, "without an id", after(rid, send)},
	{"ring on the wrong frontend", []string{"no-feed"}, "the feed", wrongRing},
	{"block in the redirect frontend", []string{"wrong-frontend", "never-reached"}, "without a question", redirects},
	{"own use_backend first", []string{"own-route-first"}, "without a question", ownFirst},
}

// begins reports whether a line is one that says text.
func begins(line, text string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, " \t"), text)
}

// drop takes out each line that begins with text.
func drop(text string) func(string) string {
	return func(conf string) string {
		var b strings.Builder
		for line := range strings.Lines(conf) {
			if !begins(line, text) {
				b.WriteString(line)
			}
		}
		return b.String()
	}
}

// after moves each line that begins with text behind the next that begins with mark.
func after(text, mark string) func(string) string {
	return func(conf string) string {
		var b strings.Builder
		moved := ""
		for line := range strings.Lines(conf) {
			if begins(line, text) {
				moved += line
				continue
			}
			b.WriteString(line)
			if begins(line, mark) {
				b.WriteString(moved)
				moved = ""
			}
		}
		return b.String() + moved
	}
}

// isLog reports whether a line of a frontend leads to the feed.
func isLog(line string) bool {
	return begins(line, "log ") && strings.Contains(line, "reports to pointsman") || begins(line, "log ") && strings.Contains(line, "once more, in case")
}

// elsewhere is the begin of a frontend that nobody uses.
const elsewhere = "\nfrontend elsewhere\n    mode http\n    timeout client 1m\n    bind 127.0.0.1:1 disabled\n"

func wrongRing(conf string) string {
	var b strings.Builder
	moved := ""
	for line := range strings.Lines(conf) {
		if isLog(line) {
			if !strings.Contains(moved, line) {
				moved += line
			}
			continue
		}
		b.WriteString(line)
	}
	if moved == "" {
		return conf
	}
	return b.String() + strings.Replace(elsewhere, " disabled", "", 1) + moved
}

func redirects(conf string) string {
	var b strings.Builder
	block, within, done := "", false, false
	for line := range strings.Lines(conf) {
		if begins(line, "filter spoe engine pointsman") {
			within = true
		}
		if !within {
			b.WriteString(line)
			continue
		}
		if !done {
			block += line
		}
		if begins(line, send) {
			within, done = false, true
		}
	}
	if block == "" {
		return conf
	}
	return b.String() + elsewhere[:strings.LastIndex(elsewhere, " disabled")] + "\n    http-request redirect scheme https\n" + block
}

// server matches a server of engines.
var server = regexp.MustCompile(`(?m)^\s*server\s+\S+\s+(\S+:(?:8000|8443|30000|11434))\b( ssl verify none)?`)

// ownFirst has each route to an LLM backend come after one of the user's own, to
// the same engine.
func ownFirst(conf string) string {
	found := server.FindStringSubmatch(conf)
	if found == nil {
		return conf
	}
	var b strings.Builder
	in, pending := "", ""
	for line := range strings.Lines(conf) {
		if w := strings.Fields(line); len(w) > 1 && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			in = w[0]
			if pending = ""; in == "frontend" {
				pending = "    use_backend old if { path_beg /v1/ }\n"
			}
		}
		if begins(line, "use_backend") || begins(line, "default_backend") {
			b.WriteString(pending)
			pending = ""
		}
		b.WriteString(line)
	}
	if !strings.Contains(b.String(), "use_backend old") {
		return conf
	}
	return b.String() + "\nbackend old\n    mode http\n    timeout connect 5s\n    timeout server 5m\n    server e " + found[1] + found[2] + "\n"
}
