package agent

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	tickInterval = time.Second
	// releaseInterval is how often held requests are checked for releases that no event
	// triggers, such as a deadline.
	releaseInterval = 20 * time.Millisecond
)

// tick does the periodic work until ctx ends: it ends leases, releases held requests,
// and sends systemd a sign of life, which shows that the pools can be locked.
func (a *Agent) tick(ctx context.Context) {
	watchdog := watchdogInterval()
	interval := tickInterval
	if watchdog > 0 {
		interval = min(interval, watchdog/3)
	}
	notices := newNotices(a)
	t := time.NewTicker(interval)
	defer t.Stop()
	release := time.NewTimer(releaseInterval)
	defer release.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-release.C:
			next := interval // a reload may bring an admission that holds
			if a.decider.HoldsRequests() {
				a.decider.Dispatch()
				next = releaseInterval
			}
			release.Reset(next)
		case <-t.C:
			a.decider.Sweep()
			for _, p := range a.decider.Panics() {
				a.Log.Error("a policy panicked", "pool", p.Pool, "panic", p.Text, "total", p.Total)
			}
			now := time.Now()
			a.feed.Recover(now)
			a.asking.Tick(a.decider, now)
			notices.tick(now)
			a.admin.Sample(now)
			if a.nginx != nil {
				a.nginx.servers.Refresh()
			}
			if watchdog > 0 {
				a.notify(daemon.SdNotifyWatchdog)
			}
		}
	}
}
