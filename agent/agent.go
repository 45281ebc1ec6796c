// Package agent is the running service: it opens the sockets, answers the
// proxies, follows their feeds, the replicas and the engines, and applies the
// configuration again on SIGHUP.
package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/coreos/go-systemd/v22/daemon"

	"pointsman/admin"
	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/decider/policy"
	"pointsman/engine"
	"pointsman/engine/tokenize"
	"pointsman/haproxy"
	"pointsman/intake"
	"pointsman/link"
	"pointsman/listen"
	"pointsman/record"
	"pointsman/resolve"
	"pointsman/spoa"
	"pointsman/state"
	"pointsman/tracing"
)

// Options say what an agent runs with.
type Options struct {
	Config   string // path of the configuration file
	Version  string // of the program, for logs and the admin endpoint
	Policies policy.Table
	Log      *slog.Logger
}

// Agent is a running pointsman. Its fields belong to the goroutine of Run,
// except for those that are safe for concurrent use by themselves.
type Agent struct {
	Options
	conf   *resolve.Config
	shown  atomic.Pointer[resolve.Config] // conf, for other goroutines
	wanted intake.Config                  // from conf, without the replicas that were found

	decider *decider.Decider
	intake  *intake.Intake
	engines *engine.Watch
	spoe    *spoa.Server
	feed    *haproxy.Feed
	link    *link.Link // to HAProxy
	asking  *haproxy.Processes
	admin   *admin.Server
	conns   *listen.Group    // of the admin endpoint
	nginx   *nginxSide       // nil when nginx does not ask
	runtime *haproxy.Runtime // nil without haproxy.runtime_api
	state   *state.Keeper    // nil = it forgets at its end
	cluster *clustered       // nil = it shares nothing

	recorder  *record.Recorder
	recording recording
	tracing   traced

	watchers watchers
	sources  *sources
	failed   chan error // of the servers
}

// Refused is an error of the configuration, or of a file that it names: another start
// meets it again.
type Refused struct{ error }

func (r Refused) Unwrap() error { return r.error }

// New loads the configuration and returns an agent that runs with it.
func New(o Options) (*Agent, error) {
	conf, err := resolve.Load(o.Config, resolve.Options{Policies: o.Policies})
	if err != nil {
		return nil, Refused{err}
	}
	set := metrics.NewSet()
	epoch := time.Now()
	d := decider.New(func() time.Duration { return time.Since(epoch) }, rand.Uint64)
	kept := openState(conf.File.Agent.StateDir, o.Log)
	d.Secret = secret(kept)
	shared, err := newCluster(&conf.File.Cluster, d, o, epoch)
	if err != nil {
		return nil, Refused{err}
	}
	d.Budgets = budget.New(func() time.Duration { return time.Since(epoch) }, d.Secret)
	in := intake.New(d)
	in.Tokenizer = tokenize.New(set)
	in.Tokenizer.Log = o.Log
	asks := &link.Link{Proxy: "haproxy"}
	asker := haproxy.NewAgent(in, asks, int(conf.File.HAProxy.Bufsize), set)
	a := &Agent{
		Options: o, conf: conf, wanted: conf.Intake(),
		decider:  d,
		state:    kept,
		cluster:  shared,
		intake:   in,
		engines:  engine.NewWatch(d, set, o.Log),
		spoe:     &spoa.Server{MaxConns: maxConns(conf), MaxFrame: max(spoa.DefaultMaxFrame, int(conf.File.HAProxy.Bufsize)), Handler: asker.Handle, Log: o.Log},
		feed:     haproxy.NewFeed(d, asks, set, o.Log),
		link:     asks,
		asking:   asker.Processes,
		admin:    admin.New(in, set, o.Version),
		conns:    listen.NewGroup("admin", admin.MaxConns, o.Log),
		recorder: record.New(d, epoch, set),
		tracing:  traced{counts: tracing.NewCounts(set)},
		watchers: watchers{},
		sources:  newSources(),
		failed:   make(chan error, 8),
	}
	a.engines.MaybeReplaced = in.Tokenizer.Forget
	if conf.File.Listen.Nginx != "" {
		a.nginx = newNginxSide(a, set)
	}
	a.admin.Recorder = a.recorder
	a.admin.Hosts = conf.File.Listen.AdminHosts
	a.admin.Config = func() ([]byte, error) { return a.shown.Load().Write() }
	a.admin.Signals = func() any { return a.engines.Status() }
	if a.runtime = a.newRuntime(); a.runtime != nil {
		a.admin.Refusals, a.admin.RuntimeAPI = a.runtime.Refusals, a.runtime.Problem
		set.NewGauge("pointsman_runtime_api_age_seconds", a.runtime.Age)
	}
	asks.Connections = func() int { return a.spoe.Stats().Open }
	a.admin.Links = a.links()
	if a.cluster != nil {
		a.admin.Cluster = a.cluster.node
	}
	exportSPOE(set, a.spoe)
	a.apply()
	a.restore(set)
	return a, nil
}

// Run serves until SIGTERM, SIGINT or the end of ctx. Then it finishes the decisions under
// way. The proxy goes on by itself.
func (a *Agent) Run(ctx context.Context) error {
	a.warn()
	if limit, from := tuneGC(os.Getenv); limit > 0 {
		a.Log.Info("memory limit", "bytes", limit, "from", from)
	}
	if err := a.serve(inherited()); err != nil {
		a.stop()
		return err
	}
	if a.cluster != nil {
		if err := a.cluster.start(); err != nil {
			a.stop()
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.runtime != nil {
		go a.runtime.Run(ctx)
	}
	go a.engines.Run(ctx)
	if a.state != nil {
		go a.state.Run(ctx)
	}
	go a.tick(ctx)
	a.watch()
	a.applyRecord()
	a.applyTracing()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ready := a.ready(ctx)
	a.Log.Info("deciding", "version", a.Version, "config", a.Config, "pools", len(a.decider.Pools()))
	for {
		select {
		case <-ready:
			ready = nil
			a.notify(daemon.SdNotifyReady)
		case err := <-a.failed:
			a.stop()
			return err
		case f := <-a.sources.found:
			a.discovered(ctx, f)
		case s := <-signals:
			if s == syscall.SIGHUP {
				a.reload()
				continue
			}
			a.Log.Info("draining", "signal", s.String())
			a.stop()
			return nil
		case <-ctx.Done():
			a.stop()
			return nil
		}
	}
}

// warn logs settings that are probably mistakes.
func (a *Agent) warn() {
	for _, w := range a.conf.Warnings() {
		a.Log.Warn(w.Error())
	}
	if text := a.conf.File.FeedForOthers(config.LocalUsers()); text != "" {
		a.Log.Warn(text)
	}
}

// newRuntime returns the follower of HAProxy's runtime API, or nil if none is configured.
func (a *Agent) newRuntime() *haproxy.Runtime {
	h := &a.conf.File.HAProxy
	if h.RuntimeAPI == "" {
		return nil
	}
	network, address := split(h.RuntimeAPI)
	return &haproxy.Runtime{
		Network: network, Address: address, Poll: h.Poll,
		Decider: a.decider, Log: a.Log, Members: a.sources.members, Version: a.link.SetVersion,
	}
}

// maxConns is how many connections HAProxy may open. An answer that is held
// takes almost one connection each, in addition to the usual ones.
func maxConns(c *resolve.Config) int { return spoa.DefaultMaxConns + c.MaxHeld() }
