package agent

import (
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"

	"pointsman/resolve"
)

// reload applies the file as it is now, or refuses it and keeps the old
// configuration.
func (a *Agent) reload() {
	a.notify(daemon.SdNotifyReloading)
	defer a.notify(daemon.SdNotifyReady)
	next, err := a.next()
	if err != nil {
		a.Log.Error("reload refused, the old configuration stays", "error", err)
		return
	}
	a.conf, a.wanted = next, next.Intake()
	a.sources.retain(next)
	a.apply()
	a.watch()
	a.applyRecord()
	a.applyTracing()
	a.Log.Info("reloaded", "config", a.Config, "pools", len(a.decider.Pools()))
	a.warn()
}

// next is the configuration in the file, unless only a restart can apply it.
func (a *Agent) next() (*resolve.Config, error) {
	next, err := resolve.Load(a.Config, resolve.Options{Policies: a.Policies})
	if err != nil {
		return nil, err
	}
	if keys := a.conf.File.Diff(next.File); len(keys) > 0 {
		return nil, fmt.Errorf("these need a restart: %s", strings.Join(keys, ", "))
	}
	return next, nil
}

// apply passes the configuration to all parts.
func (a *Agent) apply() {
	a.shown.Store(a.conf)
	a.applyReplicas()
	a.engines.Configure(engineOptions(a.conf))
	a.spoe.SetMaxConns(maxConns(a.conf))
	if a.nginx != nil {
		a.nginx.agent.Set(nginxOptions(a.conf))
	}
}

// applyReplicas passes the configuration, with the replicas that were found, to the decider
// and to the parts that depend on it.
func (a *Agent) applyReplicas() {
	a.intake.Apply(a.sources.complete(a.conf, a.wanted))
	if a.nginx != nil {
		a.nginx.servers.Refresh()
	}
}
