package nginx

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// Signs of an engine: the path of a location, the name or the port of an upstream.
var (
	llmPath = regexp.MustCompile(`/v1\b|/generate\b|/(chat/)?completions\b`)
	llmName = regexp.MustCompile(`(?i)llm|sglang|llama|\bgpt|openai|mistral|mixtral|qwen|gemma|deepseek|inference|genai`)
	llmPort = regexp.MustCompile(`:(8000|30000|11434)$`)
)

// checkPath is the path of a location for health checks.
var checkPath = regexp.MustCompile(`^/(health|healthz|metrics|ping|version|status)/?$`)

// ChecksHealth reports whether a location is for health checks only.
func (d *Directive) ChecksHealth() bool {
	return checkPath.MatchString(strings.TrimLeft(strings.Join(d.Args, " "), "=^~ "))
}

const (
	longest       = 5 * time.Minute // that an engine may take to its next byte
	engineIdle    = 5 * time.Second // after which uvicorn closes an idle connection
	longestFailed = time.Minute     // that a server should be left out after failures
)

// Lint warns about settings that hurt LLM traffic, with or without pointsman. upstreams are
// those of engines; empty = those that look like it.
func Lint(file string, upstreams []string) ([]advice.Finding, error) {
	root, err := load(file)
	if err != nil {
		return nil, err
	}
	a := &adviser{file: file, level: advice.Warning, upstreams: map[string]*Directive{}}
	root.Walk(func(d *Directive) {
		if d.Name == "upstream" && len(d.Args) > 0 {
			a.upstreams[d.Args[0]] = d
		}
	})
	root.Walk(func(d *Directive) {
		if d.Name != "location" || strings.HasPrefix(strings.Join(d.Args, ""), "@pm_") {
			return
		}
		for _, pass := range d.Own("proxy_pass") {
			a.location(d, pass, upstreams)
		}
	})
	return a.out, nil
}

// Targets lists the hosts of all proxy_pass of the locations of a configuration: names of
// upstreams, and host:port.
func Targets(file string) ([]string, error) {
	root, err := load(file)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	root.Walk(func(d *Directive) {
		if d.Name != "location" {
			return
		}
		for _, pass := range d.Own("proxy_pass") {
			if len(pass.Args) == 0 {
				continue
			}
			if u, err := url.Parse(pass.Args[0]); err == nil && u.Host != templates.NginxAgent {
				seen[u.Host] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(seen)), nil
}

// location examines a location that passes requests on, if it leads to engines.
func (a *adviser) location(d, pass *Directive, named []string) {
	if len(pass.Args) == 0 {
		return
	}
	u, err := url.Parse(pass.Args[0])
	if err != nil || u.Host == templates.NginxAgent {
		return
	}
	up := a.upstreams[u.Host]
	is := slices.Contains(named, u.Host)
	if len(named) == 0 {
		is = llmPath.MatchString(strings.Join(d.Args, " ")) || llmName.MatchString(u.Host) || llmPort.MatchString(u.Host)
		if up != nil {
			is = is || slices.ContainsFunc(up.Own("server"), func(s *Directive) bool { return len(s.Args) > 0 && llmPort.MatchString(s.Args[0]) })
		}
	}
	if !is {
		return
	}
	if !d.ChecksHealth() {
		a.streams(d, pass)
	}
	if up != nil {
		a.upstream(up)
	}
}

// off reports whether the directive that applies is off; missing where it is
// absent.
func off(d *Directive, name string) (at *Directive, isOff bool) {
	l := d.Effective(name)
	if len(l) == 0 {
		return nil, false
	}
	return l[0], slices.Contains(l[0].Args, "off")
}

// or is d, or else e.
func or(d, e *Directive) *Directive {
	if d != nil {
		return d
	}
	return e
}

func (a *adviser) streams(d, pass *Directive) {
	section := "location " + strings.Join(d.Args, " ")
	if at, isOff := off(d, "proxy_buffering"); !isOff {
		a.say("buffering", or(at, pass), section, "set proxy_buffering off", "proxy_buffering is on: nginx holds back chunks of a stream")
	}
	if l := d.Effective("proxy_read_timeout"); len(l) == 0 {
		a.say("read-timeout", pass, section, "set proxy_read_timeout 600s", "no proxy_read_timeout: after 60 s without a byte the request ends as 504")
	} else if t := duration(l[0].Args); t > 0 && t < longest {
		a.say("read-timeout", l[0], section, "raise it to 600s", "proxy_read_timeout is %v: a request whose first token, or next one, takes longer ends as 504", t)
	}
	if len(d.Effective("client_max_body_size")) == 0 {
		a.say("max-body", pass, section, "set client_max_body_size 100m in the server", "no client_max_body_size: nginx refuses bodies of more than 1 MB")
	}
	if len(d.Effective("client_body_buffer_size")) == 0 {
		a.say("body-buffer", pass, section, "set client_body_buffer_size 1m", "no client_body_buffer_size: each body of more than 16 KB goes through a file")
	}
	for _, l := range d.Effective("proxy_next_upstream") {
		if slices.Contains(l.Args, "non_idempotent") {
			a.say("non-idempotent", l, section, "take non_idempotent out", "proxy_next_upstream non_idempotent: a request that an engine has begun is sent to another one as well")
		}
	}
	for _, l := range d.Effective("gzip_types") {
		if slices.Contains(l.Args, "text/event-stream") || slices.Contains(l.Args, "*") {
			a.say("gzip", l, section, "take text/event-stream out of gzip_types", "gzip of event streams holds their chunks back")
		}
	}
}

func (a *adviser) upstream(up *Directive) {
	section := "upstream " + up.Args[0]
	servers := up.Own("server")
	for _, s := range servers {
		for _, arg := range s.Args {
			value, ok := strings.CutPrefix(arg, "fail_timeout=")
			if t := duration([]string{value}); ok && t > longestFailed {
				a.say("fail-timeout", s, section, "set fail_timeout=10s", "fail_timeout is %v: a few failures take the replica out for that long", t)
			}
		}
	}
	a.kept(up, section)
	if len(servers) < 2 {
		return
	}
	if len(up.Own("zone")) == 0 {
		a.say("zone", up, section, fmt.Sprintf("add zone %s 128k", up.Args[0]), "no zone: each worker process counts connections and failures for itself")
	}
	for _, name := range []string{"least_conn", "least_time", "hash", "ip_hash", "random"} {
		if len(up.Own(name)) > 0 {
			return
		}
	}
	a.say("balance", up, section, "use least_conn, or attach pointsman",
		"round robin over engines with prefix caches: each turn of a conversation meets a cold cache, and long prompts pile up")
}

// kept warns of connections that an engine may close while nginx uses them.
func (a *adviser) kept(up *Directive, section string) {
	at, idle, since := up, time.Minute, "from nginx 1.29.7 on, "
	if l := up.Own("keepalive"); len(l) > 0 {
		at, since = l[0], ""
	}
	if l := up.Own("keepalive_timeout"); len(l) > 0 {
		at, idle = l[0], duration(l[0].Args)
	}
	if idle >= engineIdle {
		a.say("keepalive", at, section, "set keepalive_timeout 4s",
			"%sidle connections are kept for %v, and uvicorn (vLLM, SGLang) closes them after 5 s: requests that meet this end as 502", since, idle)
	}
}

// duration reads a time as nginx writes it, in seconds unless it has a unit. It
// returns 0 for anything else.
func duration(args []string) time.Duration {
	if len(args) != 1 {
		return 0
	}
	if n, err := strconv.Atoi(args[0]); err == nil {
		return time.Duration(n) * time.Second
	}
	if days, ok := strings.CutSuffix(args[0], "d"); ok {
		n, _ := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(args[0])
	return d
}
