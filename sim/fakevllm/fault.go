package fakevllm

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// fault is how a request shall fail. A client asks for it with the headers
// X-Fake-Delay (a duration before the answer begins), X-Fake-Status (an error
// answer), X-Fake-Die (break the connection after so many chunks of a stream
// or in the middle of a whole body; 0: before the headers) and X-Fake-Hang
// (any value: never answer).
type fault struct {
	status   int
	delay    time.Duration
	dieAfter int // chunks; -1 never
	hang     bool
}

// standingFault is a fault for a whole replica, set by POST /fake/fail with
// {"status", "delay", "die_after", "hang", "path", "count", "for"}, each
// optional: requests whose path begins with path, by default POST requests
// below "/v1/", fail until count of them have, or until the duration "for" is
// over. POST /fake/reset ends it.
type standingFault struct {
	fault
	path  string
	post  bool      // only POST requests
	left  int       // requests; -1 no bound
	until time.Time // zero no bound
}

// setFault serves POST /fake/fail.
func (s *Server) setFault(x *exchange) {
	in := struct {
		Status   int     `json:"status"`
		Delay    string  `json:"delay"`
		DieAfter *int    `json:"die_after"`
		Hang     bool    `json:"hang"`
		Path     *string `json:"path"`
		Count    *int    `json:"count"`
		For      string  `json:"for"`
	}{}
	if err := decode(x.body, &in); err != nil {
		x.fail(badRequest("%v", err))
		return
	}
	f := &standingFault{fault: fault{status: in.Status, dieAfter: -1, hang: in.Hang}, path: "/v1/", post: in.Path == nil, left: -1}
	if in.DieAfter != nil {
		f.dieAfter = *in.DieAfter
	}
	if in.Path != nil {
		f.path = *in.Path
	}
	if in.Count != nil {
		f.left = *in.Count
	}
	if !validStatus(in.Status) {
		x.fail(badRequest("status: %d", in.Status))
		return
	}
	var err error
	if in.Delay != "" {
		if f.delay, err = time.ParseDuration(in.Delay); err != nil {
			x.fail(badRequest("delay: %v", err))
			return
		}
	}
	if in.For != "" {
		d, err := time.ParseDuration(in.For)
		if err != nil {
			x.fail(badRequest("for: %v", err))
			return
		}
		f.until = time.Now().Add(d)
	}
	s.mu.Lock()
	s.fault = f
	s.mu.Unlock()
	x.json(http.StatusOK, struct{}{})
}

// resetFault serves POST /fake/reset.
func (s *Server) resetFault(x *exchange) {
	s.mu.Lock()
	s.fault = nil
	s.mu.Unlock()
	x.json(http.StatusOK, struct{}{})
}

func validStatus(code int) bool { return code == 0 || code >= 200 && code <= 599 }

// applyFault does what is asked for up to the beginning of the answer, and
// returns false when the request is over.
func (s *Server) applyFault(x *exchange) bool {
	f, err := headerFault(x.r.Header)
	if err != nil {
		x.fail(err)
		return false
	}
	if f == nil {
		f = s.standing(x.r)
	}
	if f == nil {
		x.fault.dieAfter = -1
		return true
	}
	x.fault = *f
	if f.delay > 0 {
		s.pause(x, f.delay)
	}
	if f.hang {
		s.pause(x, 0)
	}
	if f.dieAfter == 0 {
		x.die()
	}
	if f.status != 0 {
		kind := strings.ReplaceAll(http.StatusText(f.status), " ", "")
		x.fail(&apiError{status: f.status, kind: kind, message: "failure on request"})
		return false
	}
	return true
}

// pause waits for d, or for ever if d is 0. It does not return when the client
// or the server goes away meanwhile.
func (s *Server) pause(x *exchange, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return
	case <-x.r.Context().Done():
	case <-s.closed:
	}
	panic(http.ErrAbortHandler)
}

// standing returns the replica's fault if it applies to a request, and counts
// the request.
func (s *Server) standing(r *http.Request) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault
	if f == nil || !strings.HasPrefix(r.URL.Path, f.path) || f.post && r.Method != http.MethodPost {
		return nil
	}
	if f.left == 0 || !f.until.IsZero() && time.Now().After(f.until) {
		s.fault = nil
		return nil
	}
	if f.left > 0 {
		f.left--
	}
	return &f.fault
}

// headerFault reads the fault a request asks for; nil for none.
func headerFault(h http.Header) (*fault, *apiError) {
	f := fault{dieAfter: -1}
	asked := false
	for _, name := range []string{"X-Fake-Status", "X-Fake-Delay", "X-Fake-Die", "X-Fake-Hang"} {
		v := h.Get(name)
		if v == "" {
			continue
		}
		asked = true
		var err error
		switch name {
		case "X-Fake-Status":
			f.status, err = strconv.Atoi(v)
			if err == nil && (f.status == 0 || !validStatus(f.status)) {
				err = strconv.ErrRange
			}
		case "X-Fake-Delay":
			f.delay, err = time.ParseDuration(v)
		case "X-Fake-Die":
			f.dieAfter, err = strconv.Atoi(v)
		case "X-Fake-Hang":
			f.hang = true
		}
		if err != nil {
			return nil, badRequest("%s: %v", name, err)
		}
	}
	if !asked {
		return nil, nil
	}
	return &f, nil
}
