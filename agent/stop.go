package agent

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// drainTime is how long the decisions under way may take at the end.
const drainTime = 5 * time.Second

// stop waits for the decisions under way, then closes everything.
func (a *Agent) stop() {
	a.notify(daemon.SdNotifyStopping)
	a.admin.Drain()
	a.watchers.stop()
	a.decider.Drain() // answers held requests
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.spoe.Shutdown(ctx); err != nil {
		a.Log.Warn("decisions under way were cut off", "error", err)
	}
	if a.nginx != nil {
		a.nginx.stop(ctx, a.Log)
	}
	a.feed.Close()
	if a.cluster != nil {
		a.cluster.stop()
	}
	a.stopRecording()
	a.stopTracing()
	a.recorder.Close()
	if a.state != nil {
		a.state.Close() // later events belong to the next life
	}
	if err := a.admin.Shutdown(); err != nil {
		a.Log.Debug("admin shutdown", "error", err)
	}
}
