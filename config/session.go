package config

import (
	"fmt"
	"slices"
	"strings"
)

// The environment variables that name session headers. The first overrides the
// file, for containers that share one. The second is for users of Ray; it applies
// when neither the first nor the file names any.
const (
	SessionEnv    = "POINTSMAN_SESSION_HEADER"
	RaySessionEnv = "RAY_SERVE_SESSION_ID_HEADER_KEY"
)

// sessionHeaders are what clients name their conversations by: any, then Claude Code,
// OpenCode and Codex.
var sessionHeaders = []string{"x-session-id", "x-claude-code-session-id", "x-session-affinity", "session-id"}

// SessionFields are the fields of a body that may name a session, in the order in which
// they are tried by default.
var SessionFields = []string{"metadata.session_id", "conversation", "prompt_cache_key", "metadata.user_id"}

// maxHeaders bounds the session headers, since each is looked for in every
// request.
const maxHeaders = 16

// session determines the session headers and checks their names.
func (v *validator) session(env func(string) string) {
	if env == nil {
		env = func(string) string { return "" }
	}
	headers := &v.config.Session.Headers
	_, inFile := v.at["session.headers"]
	if own := split(env(SessionEnv)); len(own) > 0 {
		*headers = own
		v.environment(SessionEnv)
	} else if ray := split(env(RaySessionEnv)); len(ray) > 0 && !inFile {
		*headers = ray
		v.environment(RaySessionEnv)
	} else {
		for i, h := range *headers {
			if !isHeader(h) {
				v.refuse(fmt.Sprintf("session.headers[%d]", i), "%s is not a header name; want one such as x-session-id", quote(h))
			}
		}
	}
	for i, field := range v.config.Session.Body {
		if !slices.Contains(SessionFields, field) {
			v.refuse(fmt.Sprintf("session.body[%d]", i), "unknown field %s; want some of %s", quote(field), strings.Join(SessionFields, ", "))
		}
	}
	if len(*headers) > maxHeaders {
		v.refuse("session.headers", "want at most %d headers, not %d", maxHeaders, len(*headers))
	}
}

func (v *validator) environment(name string) {
	for _, h := range v.config.Session.Headers {
		if !isHeader(h) {
			v.errs = append(v.errs, Error{File: "environment", Path: name,
				Msg: quote(h) + " is not a header name; want names such as x-session-id, separated by commas"})
		}
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// isHeader reports whether s is a field name of HTTP (RFC 9110, token).
func isHeader(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
