package spoa

import (
	"log/slog"
	"sync"
	"time"
)

// quietLog writes at most one line a second and tells in it how many it kept
// back, so that a flood of broken frames does not become a flood of lines.
type quietLog struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

func (q *quietLog) warn(l *slog.Logger, msg string, args ...any) {
	q.mu.Lock()
	now := time.Now()
	if !q.last.IsZero() && now.Sub(q.last) < time.Second {
		q.suppressed++
		q.mu.Unlock()
		return
	}
	n := q.suppressed
	q.last, q.suppressed = now, 0
	q.mu.Unlock()
	if n > 0 {
		args = append(args, "suppressed", n)
	}
	l.Warn(msg, args...)
}
