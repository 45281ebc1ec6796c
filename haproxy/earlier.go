package haproxy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// earlier reports rules of the user's that take requests away before they get to
// the route.
func (a *adviser) earlier(l lead) {
	if l.kind == "listen" && l.route == &l.lines[0] {
		return // its own servers: other routes are exceptions
	}
	for _, r := range l.own("use_backend") {
		if r == l.route {
			return
		}
		to := r.Arg(1)
		if slices.Contains(a.Pools, to) || strings.Contains(to, "%[") || a.asks(to) || a.reported("own-route-first", r) {
			continue
		}
		cond := l.condition(r, 2)
		same := a.replicaOf(to) != "" || cond != "" && cond == l.condition(l.route, 2)
		if cond != "" && !llmPath.MatchString(cond) && !same {
			continue
		}
		remedy := fmt.Sprintf("move it below line %d, or remove it", l.route.Line)
		if !l.route.Is("use_backend") {
			remedy = "remove it, or lead to " + orPools(l.pool)
		}
		const format = "this use_backend %s comes before the one that leads to %s and takes %s: pointsman's answer is not followed"
		switch {
		case cond == "":
			a.say("own-route-first", l.section, r, remedy, format, to, orPools(l.pool), "all requests")
		case same || l.byPathAlone(r) && (l.route.Is("use_backend") || chatPath.MatchString(cond)):
			a.say("own-route-first", l.section, r, remedy, format, to, orPools(l.pool), "requests for LLM paths")
		default:
			a.warn("own-route-first", l.section, r, remedy+", unless that is meant", format, to, orPools(l.pool), "those requests for LLM paths that its condition selects")
		}
	}
}

// chatPath finds conditions that chats meet. Embeddings and the like may have separate
// engines.
var chatPath = regexp.MustCompile(`/v1/?($|[\s"'*.()}])|/(chat|chat/completions|completions|responses|messages|generate)\b`)

// reported reports whether there is a finding of that name at a rule.
func (a *adviser) reported(name string, r *rule) bool {
	for _, f := range a.out {
		if f.Rule == name && f.File == r.file && f.Line == r.Line {
			return true
		}
	}
	return false
}

// byPathAlone reports whether the path of an LLM request alone meets a rule's condition.
func (s *section) byPathAlone(r *rule) bool {
	i := slices.Index(r.Words, "if")
	if i < 0 {
		return false
	}
	alone, terms := true, 0
	for words := r.Words[i+1:]; len(words) > 0; {
		term, rest := words[:1], words[1:]
		switch words[0] {
		case "{", "!{":
			end := slices.Index(words, "}")
			if end < 0 {
				return false
			}
			term, rest = words[:end], words[end+1:]
		case "or", "||":
			if alone && terms > 0 {
				return true
			}
			alone, terms, words = true, 0, rest
			continue
		}
		text := strings.Join(term, " ")
		for _, acl := range s.own("acl", text) {
			text += " " + strings.Join(acl.Words[2:], " ")
		}
		alone = alone && llmPath.MatchString(text)
		terms++
		words = rest
	}
	return alone && terms > 0
}

// asks reports whether a backend asks by itself.
func (a *adviser) asks(backend string) bool {
	b := a.backend(backend)
	return b != nil && a.block(b) != nil
}

// LogsAtEnd reports whether a log format has a field that HAProxy knows only at the end of
// a request, so that it logs then.
func LogsAtEnd(format string) bool { return ofEnd.MatchString(format) }

// LogsRequest reports whether a log format has a field of the request's first line,
// which HAProxy keeps only where nothing but the format says when to log.
func LogsRequest(format string) bool { return ofRequest.MatchString(format) }

var ofRequest = regexp.MustCompile(`%(\{[^}]*\})?(H[MPQUV]|HPO|r|hr|hrl|CC)\b|capture\.req`)

var ofEnd = regexp.MustCompile(`%(\{[^}]*\})?(B|U|T[adtu]|ts|tsc|rc|bc|ac|fc|sc)\b`)

// logsEnds reports a frontend whose requests are not logged at their end. With log
// profiles, HAProxy logs when it has what the frontend's own format needs, or when
// log-steps says.
func (a *adviser) logsEnds(l lead, feed *rule) {
	if !slices.Contains(feed.Words, "profile") {
		return
	}
	steps, format := l.last("log-steps"), l.last("log-format")
	switch {
	case steps != nil && !strings.Contains(steps.Arg(1), "close") && steps.Arg(1) != "all":
		a.say("log-steps", l.section, steps, "add close to it", "log-steps without close: the ends of requests are not reported")
	case steps == nil && format != nil && !ofEnd.MatchString(format.Text()):
		a.say("log-steps", l.section, feed, "add a field of the end, such as %B, to that log-format",
			"the log-format at %s:%d needs nothing of the end of a request, so that requests are logged before it and their ends are not reported", format.file, format.Line)
	}
}
