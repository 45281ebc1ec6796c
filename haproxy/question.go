package haproxy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// block is the part of a section that asks pointsman.
type block struct {
	*section
	filter, send *rule
	before       []rule // of the section, up to send
}

// block finds the rules in a section that ask; nil if there are none.
func (a *adviser) block(s *section) *block {
	b := &block{section: s}
	for i := range s.lines {
		switch l := &s.lines[i]; {
		case l.Is("filter", "spoe") && strings.Contains(l.Text(), "pointsman"):
			b.filter = l
		case b.send == nil && l.Is("http-request", "send-spoe-group") && strings.HasPrefix(l.Arg(2), "pointsman"):
			b.send, b.before = l, s.lines[:i]
		}
	}
	if b.filter == nil && b.send == nil {
		return nil
	}
	return b
}

// sets matches the rules that set a variable.
func sets(name string) func(rule) bool {
	return func(l rule) bool {
		return l.Is("http-request") && strings.HasPrefix(l.Arg(1), "set-var("+name) &&
			strings.HasPrefix(strings.TrimPrefix(l.Arg(1), "set-var("+name), ")")
	}
}

func waitsForBody(l rule) bool { return l.Is("http-request", "wait-for-body") }

// question checks that the rules of b ask, in the right order and place.
func (a *adviser) question(b *block, leads []lead) {
	switch {
	case b.send == nil:
		a.say("no-send", b.section, b.filter, "add http-request send-spoe-group pointsman pm-route if METH_POST",
			"the filter is here, but no http-request send-spoe-group: pointsman is never asked")
		return
	case b.filter == nil:
		a.say("no-filter", b.section, b.send, "add filter spoe engine pointsman config /etc/pointsman/pointsman-spoe.conf", "send-spoe-group without its filter")
		return
	}
	var front []*section // whose rules run before
	for _, l := range leads {
		if l.section == b.section || l.pool == b.name {
			front = append(front, l.section)
		}
	}
	if len(front) == 0 && b.receives() {
		remedy := "no frontend leads to a pool"
		if len(leads) > 0 {
			remedy = fmt.Sprintf("move the block to %s at %s:%d", leads[0].title(), leads[0].lines[0].file, leads[0].lines[0].Line)
		}
		a.say("wrong-frontend", b.section, b.filter, remedy, "this %s asks pointsman, but leads to no pool", b.kind)
	}
	for i := range b.before {
		if l := &b.before[i]; l.Is("http-request") && slices.Contains([]string{"redirect", "deny", "return", "reject", "tarpit"}, l.Arg(1)) &&
			!slices.Contains(l.Words, "if") && !slices.Contains(l.Words, "unless") {
			a.say("never-reached", b.section, l, fmt.Sprintf("give it a condition, or move the block from line %d to the frontend that serves", b.send.Line),
				"http-request %s without a condition ends each request before pointsman is asked", l.Arg(1))
		}
	}
	a.ordered(b, "no-rid", "http-request set-var(txn.pm.rid) uuid()",
		"the feed's lines cannot be told apart: each reservation lasts until its lease ends", "set-var(txn.pm.rid)", sets("txn.pm.rid"))
	buffered := b.option("http-buffer-request")
	for _, f := range front {
		buffered = buffered || f.option("http-buffer-request") || f != b.section && slices.ContainsFunc(f.lines, waitsForBody)
	}
	if !buffered {
		a.ordered(b, "no-body", "http-request wait-for-body time 30s", "pointsman sees no body, and so no model and no prompt", "wait-for-body", waitsForBody)
	}
}

// renderedBefore reports what earlier releases rendered for HAProxy before 3.0.
func (a *adviser) renderedBefore(b *block) {
	if a.Version.AtLeast(3, 0) || b.send == nil {
		return
	}
	a.bodyTimers(b)
	if !strings.Contains(b.send.Text(), "txn.pm.error") {
		a.warn("asks-when-away", b.section, b.send, "attach or render again, and reload HAProxy",
			"the agent is asked while it is away: each request then waits for the whole processing timeout, and HAProxy before 2.6.17 uses all CPU time meanwhile")
	}
}

// bodyTimers reports waits for a body whose timers end while a request is held. Before 3.0
// they run on after the body has come, and HAProxy aborts a second after they end.
func (a *adviser) bodyTimers(b *block) {
	if a.Decision < time.Second {
		return
	}
	for i := range b.before {
		l := &b.before[i]
		at := slices.Index(l.Words, "time")
		if !waitsForBody(*l) || at < 0 || at+1 >= len(l.Words) {
			continue
		}
		if d := duration(l.Words[at+1]); d > 0 && d < a.Decision {
			a.say("body-timeout", b.section, l, "attach or render again, and reload HAProxy",
				"HAProxy %s aborts when a request is held for longer than the %v of this wait-for-body, and a hold may take %v", a.Version, d, a.Decision)
		}
	}
}

// ordered reports a rule that is missing or comes after the question.
func (a *adviser) ordered(b *block, name, add, harm, what string, is func(rule) bool) {
	if slices.ContainsFunc(b.before, is) {
		return
	}
	for i := range b.lines {
		if l := &b.lines[i]; is(*l) {
			a.say(name, b.section, l, fmt.Sprintf("move it above line %d", b.send.Line), "%s comes after send-spoe-group: %s", what, harm)
			return
		}
	}
	a.say(name, b.section, b.send, "add before it "+add+" with the same condition", "no %s before send-spoe-group: %s", what, harm)
}
