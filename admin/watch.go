package admin

import (
	"github.com/valyala/fasthttp"

	"pointsman/decider"
	"pointsman/session"
)

// Watch is the answer of /debug/watch.
type Watch struct {
	// Headers are those that can carry the session id of the request.
	Headers []string         `json:"session_headers"`
	Request *decider.Watched `json:"request"` // nil until the proxy has asked about it
}

// watch follows one request that a checker sends, by the session id that it made
// up for it.
func (s *Server) watch(ctx *fasthttp.RequestCtx) {
	id := ctx.QueryArgs().Peek("session")
	if len(id) < 8 || len(id) > 128 {
		ctx.Error("want session=ID of 8 to 128 bytes\n", fasthttp.StatusBadRequest)
		return
	}
	key := session.Key(id)
	answer := Watch{Headers: s.intake.SessionHeaders()}
	if ctx.IsPost() {
		s.decider.Watch(key)
	} else if w, ok := s.decider.Watched(key); ok {
		answer.Request = &w
	}
	writeJSON(ctx, answer)
}
