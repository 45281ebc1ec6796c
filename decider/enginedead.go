package decider

import "time"

// Dead reports that the engine itself says that it cannot serve, though its server
// answers. The replica is ejected for that long, whatever its requests seem to show.
func (e Engine) Dead(lasting time.Duration) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	now := p.clock()
	if now >= r.deadUntil {
		r.failed++
	}
	r.seen = false
	r.deadUntil = now + lasting
	p.ejectedUntil = max(p.ejectedUntil, r.deadUntil)
	p.admission.dispatch(now)
}

// Alive reports that the engine says that it can serve again: it is another one, with
// an empty cache.
func (e Engine) Alive() {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	r.deadUntil = 0
	p.restarted(r)
	p.admission.dispatch(p.clock())
}
