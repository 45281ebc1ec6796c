package decider

import "time"

// Watched is what a pool knows about a watched request.
type Watched struct {
	Pool      string  `json:"pool"`
	Asked     bool    `json:"asked"`            // the proxy asked about it
	Server    string  `json:"server,omitempty"` // decided; empty = nobody
	Why       string  `json:"why,omitempty"`
	ServedBy  string  `json:"served_by,omitempty"` // as the proxy reported
	FirstByte bool    `json:"first_byte"`          // was reported
	TTFT      float64 `json:"ttft_s,omitempty"`    // from the decision, or as the proxy measured it
	Ended     bool    `json:"ended"`               // was reported
	End       string  `json:"end,omitempty"`
	Status    int     `json:"status,omitempty"`
}

// watch follows one request, known by its session, from its decision to its
// outcome. It lives under the pool's lock.
type watch struct {
	armed   bool
	session uint64
	id      ID
	at      time.Duration // of the decision
	seen    Watched
}

// Watch makes all pools follow the next request of a session, in place of any that they
// followed before.
func (d *Decider) Watch(session uint64) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.watch = watch{armed: true, session: session}
		p.mu.Unlock()
	}
}

// Watched returns what is known about the request, and whether there was one of the
// session.
func (d *Decider) Watched(session uint64) (Watched, bool) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		w, of := p.watch.seen, p.watch.session
		p.mu.Unlock()
		if w.Asked && of == session {
			w.Pool = p.name
			return w, true
		}
	}
	return Watched{}, false
}

// decided notes a decision.
func (w *watch) decided(r *Request, d *Decision, now time.Duration) {
	if !w.armed || !r.HasSession || r.Watched != w.session {
		return
	}
	w.armed, w.id, w.at = false, r.ID, now
	w.seen = Watched{Asked: true, Server: d.Server, Why: d.Why}
}

// follows reports whether the request is the one that is watched.
func (w *watch) follows(id ID) bool { return w.seen.Asked && w.id == id }

// first notes a first byte.
func (w *watch) first(id ID, server []byte, now time.Duration) {
	if w.follows(id) && !w.seen.FirstByte {
		w.seen.FirstByte, w.seen.TTFT, w.seen.ServedBy = true, (now - w.at).Seconds(), string(server)
	}
}

// finished notes the end.
func (w *watch) finished(o *Outcome) {
	if !w.follows(o.ID) || w.seen.Ended {
		return
	}
	w.seen.Ended, w.seen.End, w.seen.Status = true, o.End.String(), o.Status
	if len(o.Server) > 0 {
		w.seen.ServedBy = string(o.Server)
	}
	if o.TTFT > 0 {
		w.seen.FirstByte, w.seen.TTFT = true, o.TTFT.Seconds()
	}
}
