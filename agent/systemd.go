package agent

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to systemd, if that started the agent.
func (a *Agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.Log.Debug("cannot notify systemd", "error", err)
	}
}

// watchdogInterval is how often systemd wants a sign of life; 0 = never.
func watchdogInterval() time.Duration {
	interval, _ := daemon.SdWatchdogEnabled(false)
	return interval
}
