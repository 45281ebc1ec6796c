package listen

import (
	"log/slog"
	"sync"
	"time"
)

// burstGap separates two bursts of events.
const burstGap = time.Second

// BurstLog writes at most one line a second, so that a flood of events does not
// become a flood of lines. Each line carries the number of lines suppressed
// before it. The zero value is ready; it is safe for concurrent use.
type BurstLog struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// Warn writes the line, or counts it as suppressed.
func (b *BurstLog) Warn(l *slog.Logger, msg string, args ...any) {
	b.mu.Lock()
	now := time.Now()
	if !b.last.IsZero() && now.Sub(b.last) < burstGap {
		b.suppressed++
		b.mu.Unlock()
		return
	}
	n := b.suppressed
	b.last, b.suppressed = now, 0
	b.mu.Unlock()
	if n > 0 {
		args = append(args, "suppressed", n)
	}
	l.Warn(msg, args...)
}
