package fakevllm

import (
	"net/http"
	"sync"
)

// core is the process that computes, which may die while the server lives: then
// streams end with an error event and [DONE], other requests fail with 500, and
// /health answers 503. Killed by POST /fake/fail with {"core": true}. It is safe for concurrent use.
type core struct {
	mu    sync.Mutex
	ended chan struct{} // closed when it dies
}

// dies returns a channel that is closed when the core is dead.
func (c *core) dies() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	return c.ended
}

// isDead reports whether the core is dead.
func (c *core) isDead() bool {
	select {
	case <-c.dies():
		return true
	default:
		return false
	}
}

func (c *core) kill() {
	if !c.isDead() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.ended)
	}
}

// revive starts another core.
func (c *core) revive() {
	if c.isDead() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = nil
	}
}

// coreDead is the error of requests to a server whose core is dead.
var coreDead = &apiError{
	status: http.StatusInternalServerError, kind: "Internal Server Error",
	message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
}
