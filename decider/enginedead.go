package decider

import "time"

// Dead reports that the engine declares itself unable to serve, though its server answers.
// The replica is ejected for that time, whatever its requests show.
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

// Alive reports that the engine can serve again: it is a new one, with an empty cache.
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
