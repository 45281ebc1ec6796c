package stand

import (
	"errors"
	"strings"

	"pointsman/templates"
)

// WithoutAgent removes the lines for the agent and its feed from a rendered configuration of
// HAProxy.
func WithoutAgent(text string) string {
	return without(text, func(l string) bool {
		return strings.HasPrefix(l, "filter spoe") || strings.HasPrefix(l, "http-request send-spoe-group") ||
			strings.HasPrefix(l, "log ") && strings.Contains(l, " format raw ") // by the ring and by datagrams
	})
}

// NginxWithoutAgent passes requests to the upstream of a pool in place of the agent, and
// sends no feed.
func NginxWithoutAgent(text, pool string) (string, error) {
	before, after, ok := strings.Cut(text, "proxy_pass http://"+templates.NginxAgent+";")
	if !ok {
		return "", errors.New("the template does not pass requests to the agent")
	}
	text = before + "proxy_pass http://" + templates.NginxUpstream(pool, "") + ";" + after
	return without(text, func(l string) bool { return strings.Contains(l, "syslog:") }), nil
}

// without removes lines.
func without(text string, drop func(trimmed string) bool) string {
	var keep []string
	for line := range strings.Lines(text) {
		if !drop(strings.TrimSpace(line)) {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}
