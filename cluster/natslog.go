package cluster

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsLog forwards the log of the NATS server: each kind of line once a minute.
type natsLog struct {
	log   *slog.Logger
	auth  *routeAuth
	fatal atomic.Pointer[string]

	mu   sync.Mutex
	last map[string]time.Time // by format
}

// mostFormats bounds how many kinds of lines are counted separately.
const mostFormats = 256

// often reports whether such a line was passed on within the last minute.
func (l *natsLog) often(format string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last[format]) < time.Minute {
		return true
	}
	if l.last == nil || len(l.last) >= mostFormats {
		l.last = map[string]time.Time{}
	}
	l.last[format] = now
	return false
}

// Noticef implements server.Logger.
func (l *natsLog) Noticef(format string, v ...any) {
	l.log.Debug("cluster: nats: " + fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *natsLog) Warnf(format string, v ...any) { l.pass(format, v) }

// Errorf implements server.Logger.
func (l *natsLog) Errorf(format string, v ...any) { l.pass(format, v) }

func (l *natsLog) pass(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, "uthorization Violation") {
		l.auth.refusedUs.Add(1)
	}
	if strings.HasPrefix(text, "Plaintext passwords") {
		return // they are made from the secret, for this process alone
	}
	if !l.often(format) {
		l.log.Warn("cluster: nats: " + text)
	}
}

// Fatalf implements server.Logger.
func (l *natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.Store(&text)
	l.log.Error("cluster: nats: " + text)
}

// Debugf implements server.Logger.
func (*natsLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (*natsLog) Tracef(string, ...any) {}

var _ server.Logger = (*natsLog)(nil)
