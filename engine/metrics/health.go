package metrics

import (
	"errors"
	"time"
)

// The core of a vLLM can die while its server lives on for a while: streams then end
// with a status of 200 and an error among their events, which a proxy takes for
// success, and other requests get 500. Only its /health shows it. It is asked every
// healthEvery. Its answer counts for deadFor: until the next one, although that and a
// scrape may take up to timeout each.
//
// With several API servers, as with data parallelism, these end, while their parent has
// the port open for seconds more: it accepts connections that nobody answers.
// An engine that has closed a connection is dead if it does not answer over the next one
// within lostAfter.
const (
	healthEvery = time.Second
	deadFor     = 2*timeout + 2*healthEvery
	lostAfter   = 3 * healthEvery / 4
)

// asksHealth reports whether the engine is asked for its health: only vLLM's answer is
// known to mean this and to be free. SGLang's generates a token.
func (s *Scraper) asksHealth() bool {
	return s.seen && s.last.Kind == VLLM && s.paths[s.path][0] == '/' && (s.dead || s.failures == 0)
}

// readHealth handles the answer of /health. Without an answer nothing changes, unless the
// engine was dead before: its server ends, and the next one takes long to start.
func (s *Scraper) readHealth(err error, now time.Duration) {
	status, answered := errors.AsType[statusError](err)
	switch {
	case err == nil:
		s.alive()
	case answered && status == 503, s.dead:
		s.declareDead()
	}
	s.dueHealth = (now + healthEvery).Round(tick)
}

// alive handles that the engine serves: a replica that was declared dead is chosen again.
func (s *Scraper) alive() {
	if s.dead {
		s.dead = false
		s.report.alive(s)
		s.pool.Engine(s.replica).Alive()
	}
}

// abandoned reports whether nobody seems to be left behind the engine's port.
func (s *Scraper) abandoned(now time.Duration) bool {
	return now-s.sentAt >= lostAfter && s.asksHealth() && s.fetcher.lost()
}

// declareDead ejects the replica for a while.
func (s *Scraper) declareDead() {
	if !s.dead {
		s.dead = true
		s.report.dead(s)
	}
	s.pool.Engine(s.replica).Dead(deadFor)
}
