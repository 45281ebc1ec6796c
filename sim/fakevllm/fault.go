package fakevllm

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fault describes how a request fails. A client requests it with the headers
// X-Fake-Delay (a duration before the answer begins), X-Fake-Status (an error
// answer), X-Fake-Die (reset the connection after that many chunks of a stream
// or in the middle of a whole body; 0 means before the headers) and X-Fake-Hang
// (any value: never answer).
type fault struct {
	status     int
	delay      time.Duration
	abortAfter int // chunks; -1 means never
	hang       bool
}

// replicaFault is a fault of the whole replica, set by POST /fake/fail with
// {"status", "delay", "die_after", "hang", "path", "count", "for"}, each
// optional. It applies to requests whose path begins with path, by default to
// POST requests below "/v1/", until count requests have failed or the duration
// "for" is over. With {"core": true} the core dies instead. POST /fake/reset removes
// either.
type replicaFault struct {
	fault
	path  string
	post  bool      // only POST requests
	left  int       // requests; -1 means no limit
	until time.Time // zero means no limit
}

// faults holds the replica's fault. It is safe for concurrent use.
type faults struct {
	mu  sync.Mutex
	now *replicaFault // nil for none
}

func (f *faults) set(r *replicaFault) {
	f.mu.Lock()
	f.now = r
	f.mu.Unlock()
}

// setFault serves POST /fake/fail.
func (s *Server) setFault(x *exchange) {
	in := struct {
		Status   int     `json:"status"`
		Delay    string  `json:"delay"`
		DieAfter *int    `json:"die_after"`
		Hang     bool    `json:"hang"`
		Core     bool    `json:"core"`
		Path     *string `json:"path"`
		Count    *int    `json:"count"`
		For      string  `json:"for"`
	}{}
	if err := decode(x.body, &in); err != nil {
		x.fail(badRequest("%v", err))
		return
	}
	if in.Core {
		s.core.kill()
		x.json(http.StatusOK, struct{}{})
		return
	}
	f := &replicaFault{fault: fault{status: in.Status, abortAfter: -1, hang: in.Hang}, path: "/v1/", post: in.Path == nil, left: -1}
	if in.DieAfter != nil {
		f.abortAfter = *in.DieAfter
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
	s.faults.set(f)
	x.json(http.StatusOK, struct{}{})
}

// resetFault serves POST /fake/reset.
func (s *Server) resetFault(x *exchange) {
	s.faults.set(nil)
	s.core.revive()
	x.json(http.StatusOK, struct{}{})
}

func validStatus(code int) bool { return code == 0 || code >= 200 && code <= 599 }

// applyFault applies the request's fault, or else the replica's, up to the
// beginning of the answer. It returns false if the request has been answered.
func (s *Server) applyFault(x *exchange) bool {
	f, err := headerFault(x.r.Header)
	if err != nil {
		x.fail(err)
		return false
	}
	if f == nil {
		f = s.faults.match(x.r)
	}
	if f == nil {
		x.fault.abortAfter = -1
		return true
	}
	x.fault = *f
	if f.delay > 0 {
		s.pause(x, f.delay)
	}
	if f.hang {
		s.pause(x, 0)
	}
	if f.abortAfter == 0 {
		x.abort()
	}
	if f.status != 0 {
		kind := strings.ReplaceAll(http.StatusText(f.status), " ", "")
		x.fail(&apiError{status: f.status, kind: kind, message: "requested failure"})
		return false
	}
	return true
}

// pause waits for d, or forever if d is 0. It does not return if the client
// disconnects or the server closes meanwhile.
func (s *Server) pause(x *exchange, d time.Duration) {
	if x.r.Method == http.MethodPost && strings.HasPrefix(x.r.URL.Path, "/v1/") {
		defer s.Hold()()
	}
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
	case <-s.engine.closed:
	}
	panic(http.ErrAbortHandler)
}

// match returns the replica's fault if it applies to a request, and counts the
// request.
func (f *faults) match(r *http.Request) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now
	if now == nil || !strings.HasPrefix(r.URL.Path, now.path) || now.post && r.Method != http.MethodPost {
		return nil
	}
	if now.left == 0 || !now.until.IsZero() && time.Now().After(now.until) {
		f.now = nil
		return nil
	}
	if now.left > 0 {
		now.left--
	}
	return &now.fault
}

// headerFault returns the fault that a request's headers ask for, nil for none.
func headerFault(h http.Header) (*fault, *apiError) {
	f := fault{abortAfter: -1}
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
			f.abortAfter, err = strconv.Atoi(v)
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
