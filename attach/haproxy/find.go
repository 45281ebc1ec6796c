package haproxy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"pointsman/attach"
	hap "pointsman/haproxy"
)

// Signs that a backend is one of LLM engines, and their weights. certain is enough to
// attach; doubtful is enough to ask.
const (
	certain  = 3
	doubtful = 2
)

var (
	llmPath = regexp.MustCompile(`/v1/\(?(chat|completions|embeddings|models|responses|messages|rerank|audio)\b|/(generate|generate_stream|chat/completions)\b`)
	v1Path  = regexp.MustCompile(`(^|[^\w/])\^?/v1\b`)
	llmName = regexp.MustCompile(`(?i)llm|sglang|llama|\bgpt|openai|mi[sx]tral|qwen|gemma|deepseek|trt-?llm|inference|genai`)
	llmPort = regexp.MustCompile(`:(8000|30000|11434)$`)
)

// signs returns why a backend looks like one of LLM engines, and a score of how much.
func (c *configuration) signs(b *section) (score int, why []string) {
	add := func(n int, what string) {
		score += n
		why = append(why, what)
	}
	path := func(text, where string) {
		if p := llmPath.FindString(text); p != "" {
			add(certain, where+" "+p)
		} else if v1Path.MatchString(text) {
			add(1, where+" /v1")
		}
	}
	if llmName.MatchString(b.name) {
		add(2, "its name")
	}
	seen := ""
	for _, f := range c.frontends(b) {
		for _, r := range f.routes(b.name) {
			if r.Arg(1) == b.name {
				seen += " " + f.condition(r)
			}
		}
	}
	path(seen, "requests for")
	checked := ""
	if s, _ := b.find(begins("option", "httpchk")); s != nil {
		checked = s.Text()
	}
	for _, s := range b.statements {
		if s.Is("http-check") {
			checked += " " + s.Text()
		}
	}
	path(checked, "a health check of")
	health := strings.Contains(checked, "/health") && !strings.Contains(checked, "/healthz")
	if health {
		add(1, "a health check of /health")
	}
	for i := range b.statements {
		s := &b.statements[i]
		if port := llmPort.FindStringSubmatch(s.Arg(2)); s.Is("server") && port != nil {
			add(1, "servers at port "+port[1])
			if health {
				score++ // the two together are typical
			}
			break
		}
	}
	return score, why
}

// condition is the text of a route's condition, with the ACLs that it names.
func (s *section) condition(route *hap.Statement) string {
	text := strings.Join(route.Words[2:], " ")
	for _, w := range route.Words[2:] {
		w = strings.TrimPrefix(w, "!")
		for i := range s.statements {
			if a := &s.statements[i]; a.Is("acl", w) {
				text += " " + strings.Join(a.Words[2:], " ")
			}
		}
	}
	return text
}

// choose returns the backends to attach to: those named, or those that look like LLM
// engines. skipped are others that look a little like it.
func (c *configuration) choose(named []string) (chosen []*section, skipped []string, err error) {
	for _, name := range named {
		b := c.backend(name)
		if b == nil {
			return nil, nil, attach.Unknown("no backend "+name, c.backends())
		}
		if err := c.usable(b); err != nil {
			return nil, nil, err
		}
		chosen = append(chosen, b)
	}
	if len(named) > 0 {
		return chosen, nil, nil
	}
	for _, b := range c.sections {
		if !b.balances() || b.own(begins("server")) == nil && b.own(begins("server-template")) == nil {
			continue
		}
		score, why := c.signs(b)
		switch {
		case score < doubtful:
		case score < certain:
			skipped = append(skipped, fmt.Sprintf("%s (%s: %s)", b.name, c.where(b, b.statements[0].Line), strings.Join(why, ", ")))
		default:
			if err := c.usable(b); err != nil {
				return nil, nil, err
			}
			chosen = append(chosen, b)
		}
	}
	switch {
	case len(chosen) > 0:
	case len(skipped) > 0:
		err = fmt.Errorf("not sure which backends lead to LLM engines: name them with --backend; candidates: %s", strings.Join(skipped, "; "))
	case len(c.backends()) > 0:
		err = fmt.Errorf("no backend looks like one of LLM engines: name it with --backend, one of %s", strings.Join(c.backends(), ", "))
	default:
		err = errors.New("no backend with servers in this configuration")
	}
	return chosen, skipped, err
}

// usable returns why pointsman cannot be attached to a backend.
func (c *configuration) usable(b *section) error {
	at := c.where(b, b.statements[0].Line)
	if !b.http() {
		return fmt.Errorf("%s: %s %s is not in \"mode http\", so HAProxy does not read its requests: set the mode, in its frontends too", at, b.kind, b.name)
	}
	if len(c.frontends(b)) == 0 {
		return fmt.Errorf("%s: no frontend leads to %s", at, b.name)
	}
	return nil
}

// backends are the names of all backends with servers.
func (c *configuration) backends() (names []string) {
	for _, s := range c.sections {
		if s.balances() && (s.own(begins("server")) != nil || s.own(begins("server-template")) != nil) {
			names = append(names, s.name)
		}
	}
	return names
}
