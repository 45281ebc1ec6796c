package nginx

import (
	"slices"
	"strings"

	ngx "pointsman/nginx"
	"pointsman/templates"
)

const agentUpstream = templates.NginxAgent

// notCarried are the directives of a location that take effect there, before nginx asks
// pointsman, or that our own locations replace. A name that ends in * stands for all with
// that prefix.
var notCarried = []string{
	"proxy_pass", "root", "alias", "index", "try_files", "include", "internal", "location",
	"set", "if", "rewrite", "return", "break", "rewrite_log", "uninitialized_variable_warn",
	"allow", "deny", "satisfy", "auth_*", "limit_req*", "limit_conn*", "limit_except", "mirror*",
	"client_*", "access_log", "error_log", "proxy_set_header", "add_header", "proxy_ignore_headers",
	"proxy_request_buffering", "proxy_buffering", "proxy_cache*", "proxy_store*", "recursive_error_pages",
	"access_by_*", "rewrite_by_*", "content_by_*", "set_by_*", "js_content", "js_set", "js_access", "set_*",
}

// onFallback are the directives that take effect only where nginx balances by itself.
var onFallback = []string{"proxy_next_upstream*", "error_page", "proxy_intercept_errors"}

// beforeBody are the directives that control how a body is read.
var beforeBody = []string{"client_max_body_size", "client_body_timeout", "client_body_temp_path"}

func in(list []string, name string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		begin, all := strings.CutSuffix(l, "*")
		return l == name || all && strings.HasPrefix(name, begin)
	})
}

// set is the part of our locations that one of the user's locations needs.
func (c *configuration) set(r *route, l *ngx.Directive, o *Options) templates.NginxSet {
	s := templates.NginxSet{Place: l.At(), Pass: r.scheme + "://" + r.host, Host: r.host}
	c.carry(l, &s)
	for _, h := range l.Effective("proxy_set_header") {
		if len(h.Args) == 2 && !strings.HasPrefix(strings.ToLower(h.Args[0]), "x-pointsman-") && !strings.EqualFold(h.Args[0], "X-Accel-Redirect") {
			s.Serve = append(s.Serve, c.raw(h))
		}
	}
	for _, h := range l.Effective("add_header") {
		s.Serve = append(s.Serve, c.raw(h))
	}
	if r.scheme == "https" && len(l.Effective("proxy_ssl_name")) == 0 {
		s.TLSName = strings.TrimSuffix(r.host, port(r.host))
	}
	c.logs(l, o, &s)
	c.guard(l, &s)
	return s
}

// port is ":port" at the end of a host, if there is one.
func port(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		return host[at:]
	}
	return ""
}

// carry copies the proxying directives of a location and of the blocks around it. Inner
// ones override.
func (c *configuration) carry(l *ngx.Directive, s *templates.NginxSet) {
	seen := map[string]bool{}
	for b := l; b != nil && b.Name == "location"; b = b.Parent {
		here := map[string]bool{}
		for _, d := range b.Block {
			switch {
			case seen[d.Name]:
				continue
			case in(beforeBody, d.Name):
				s.Ask = append(s.Ask, c.raw(d))
			case in(onFallback, d.Name):
				s.Fallback = append(s.Fallback, c.raw(d))
			case !in(notCarried, d.Name):
				s.Serve = append(s.Serve, c.raw(d))
			}
			here[d.Name] = true
		}
		for name := range here {
			seen[name] = true
		}
	}
	if !slices.ContainsFunc(s.Fallback, func(d string) bool { return strings.HasPrefix(d, "proxy_next_upstream ") }) &&
		len(l.Effective("proxy_next_upstream")) == 0 {
		s.Fallback = append(s.Fallback, "proxy_next_upstream error timeout;")
	}
}

// logs repeats the logs of the location, which ours would replace.
func (c *configuration) logs(l *ngx.Directive, o *Options, s *templates.NginxSet) {
	logs := l.Effective("access_log")
	for _, d := range logs {
		if !slices.Contains(d.Args, "off") {
			s.Logs = append(s.Logs, c.raw(d))
		}
	}
	if len(logs) == 0 && o.AccessLog != "" {
		s.Logs = append(s.Logs, "access_log "+o.AccessLog+"; # nginx's default")
	}
	for _, d := range l.Effective("error_log") {
		s.ErrorLogs = append(s.ErrorLogs, c.raw(d))
	}
	if len(s.ErrorLogs) == 0 && o.ErrorLog != "" {
		s.ErrorLogs = append(s.ErrorLogs, "error_log "+o.ErrorLog+"; # nginx's default")
	}
}

// guard lifts the server's access rules: the location has already applied them, or its own.
func (c *configuration) guard(l *ngx.Directive, s *templates.NginxSet) {
	server := enclosing(l, "server")
	if server == nil {
		return
	}
	for _, name := range []string{"auth_request", "auth_basic", "auth_jwt"} {
		if len(server.Effective(name)) > 0 {
			s.Guards = append(s.Guards, name+" off;")
		}
	}
	if len(server.Effective("allow"))+len(server.Effective("deny")) > 0 {
		s.Guards = append(s.Guards, "allow all;")
	}
}
