package metrics

import (
	"errors"
	"time"
)

// The core of a vLLM can die while its server lives on for a while: streams then end
// with a status of 200 and an error among their events, which a proxy takes for
// success, and other requests get 500. Only its /health shows it. It is asked every
// healthEvery, and its answer counts for deadFor.
const (
	healthEvery = time.Second
	deadFor     = 3 * healthEvery
)

// asksHealth reports whether the engine is asked for its health: only vLLM's answer is
// known to mean this and to be free. SGLang's generates a token.
func (s *Scraper) asksHealth() bool {
	return s.seen && s.last.Kind == VLLM && s.paths[s.path][0] == '/' && (s.dead || s.failures == 0)
}

// readHealth handles the answer of /health. Without an answer nothing changes, unless the
// engine was dead before: its server ends, and the next one takes long to start.
func (s *Scraper) readHealth(err error, now time.Duration) {
	engine := s.pool.Engine(s.replica)
	status, answered := errors.AsType[statusError](err)
	switch {
	case err == nil && s.dead:
		s.dead = false
		s.report.alive(s)
		engine.Alive()
	case answered && status == 503 && !s.dead:
		s.dead = true
		s.report.dead(s)
		engine.Dead(deadFor)
	case err != nil && s.dead:
		engine.Dead(deadFor)
	}
	s.dueHealth = (now + healthEvery).Round(tick)
}
