package fakevllm

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/bytedance/sonic"
)

var tooLarge = &apiError{status: http.StatusRequestEntityTooLarge, kind: "Request Entity Too Large", message: "Request body too large"}

// exchange is one request and its answer.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	fault  fault
	chunks int // of the stream, written so far

	engine   *engine // that serves it
	received bool    // another replica has computed the prompt
	messages bool    // errors have the form of Anthropic's Messages API
}

// readBody reads a whole body. declared is its Content-Length, or -1.
func readBody(r io.Reader, declared int64) ([]byte, error) {
	// Do not trust the declared length: allocate little and grow.
	buf := make([]byte, 0, min(max(declared, 511), 1<<20)+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
	}
}

// seenHeaders returns at most 100 header names.
func seenHeaders(h http.Header) string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), 100)], ",")
}

// json answers with status and v.
func (x *exchange) json(status int, v any) {
	body, err := sonic.Marshal(v)
	if err != nil {
		panic(err) // our own types always marshal
	}
	x.raw(status, "application/json", body)
}

// raw answers with a whole body, or aborts in the middle of it if the fault says
// so.
func (x *exchange) raw(status int, contentType string, body []byte) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", itoa(len(body)))
	x.w.WriteHeader(status)
	if x.fault.abortAfter > 0 {
		x.w.Write(body[:len(body)/2])
		x.flush()
		x.abort()
	}
	x.w.Write(body)
}

type wireError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// fail answers with an error.
func (x *exchange) fail(e *apiError) {
	if !x.messages {
		x.raw(e.status, "application/json", e.json())
		return
	}
	kind := "api_error"
	switch e.status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case http.StatusServiceUnavailable:
		kind = "overloaded_error"
	}
	x.json(e.status, object{"type": "error", "error": object{"type": kind, "message": e.message}})
}

// json is the error as a client gets it.
func (e *apiError) json() []byte {
	var out wireError
	out.Error.Message, out.Error.Type, out.Error.Code = e.message, e.kind, e.status
	if e.param != "" {
		out.Error.Param = &e.param
	}
	body, err := sonic.Marshal(out)
	if err != nil {
		panic(err) // our own types always marshal
	}
	return body
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

// abort resets the connection, or the HTTP/2 stream, and does not return.
func (x *exchange) abort() {
	if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
		if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
			_ = tcp.SetLinger(0)
		}
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}
