package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/coreos/go-systemd/v22/daemon"

	"pointsman/admin"
	"pointsman/config"
	"pointsman/decider"
	"pointsman/engine"
	"pointsman/engine/tokenize"
	"pointsman/haproxy"
	"pointsman/listen"
	"pointsman/spoa"
)

const defaultConfig = "/etc/pointsman/pointsman.yaml"

type serveCmd struct {
	Config   string `default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
}

// drainTime is how long the decisions under way may take at the end.
const drainTime = 5 * time.Second

func (c *serveCmd) Run() error {
	log := newLogger(c.LogLevel)
	conf, err := load(c.Config)
	if err != nil {
		return err
	}
	for _, w := range warnings(conf) {
		log.Warn(w.Error())
	}
	sparingly()
	a, err := newAgent(c.Config, conf, log)
	if err != nil {
		return err
	}
	return a.run()
}

func newLogger(level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: l}
	if os.Getenv("JOURNAL_STREAM") != "" {
		options.ReplaceAttr = withoutTime // the journal has its own
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// agent is a running pointsman.
type agent struct {
	path       string
	conf       *config.Config
	log        *slog.Logger
	decider    *decider.Decider
	spoe       *spoa.Server
	feed       *haproxy.Feed
	engines    *engine.Watch
	nginx      *nginxSide       // nil when no nginx asks
	runtime    *haproxy.Runtime // nil without haproxy.runtime_api
	watch      watch
	found      chan found
	knownMu    sync.Mutex
	known      map[string]found // by pool
	admin      *admin.Server
	adminConns *listen.Group
	epoch      time.Time // when the decider's clock was 0
	failed     chan error
}

func newAgent(path string, conf *config.Config, log *slog.Logger) (*agent, error) {
	epoch := time.Now()
	set := metrics.NewSet()
	d := decider.New(func() time.Duration { return time.Since(epoch) }, rand.Uint64)
	dc, err := deciderConfig(conf, epoch)
	if err != nil {
		return nil, err
	}
	d.Apply(dc)
	asked := haproxy.NewAgent(d, set)
	tokenizer := tokenize.New(set)
	asked.Prepare = tokenizer.Prepare
	a := &agent{
		path: path, conf: conf, log: log, decider: d,
		found: make(chan found), known: map[string]found{}, watch: watch{},
		spoe:       &spoa.Server{MaxConns: maxConns(conf), Handler: asked.Handle, Log: log},
		feed:       haproxy.NewFeed(d, set, log),
		engines:    engine.NewWatch(d, set, log),
		admin:      admin.New(d, set, version),
		adminConns: listen.NewGroup("admin", admin.MaxConns, log),
		epoch:      epoch,
		failed:     make(chan error, 8),
	}
	if conf.Listen.Nginx != "" {
		a.nginx = newNginxSide(a, set)
		a.nginx.agent.Prepare = tokenizer.Prepare
	}
	a.engines.Configure(engineOptions(conf))
	a.admin.Prepare = tokenizer.Prepare
	a.admin.Signals = func() any { return a.engines.Status() }
	exportSPOE(set, a.spoe)
	return a, nil
}

// run serves until a signal ends it.
func (a *agent) run() error {
	if err := a.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if a.conf.HAProxy.RuntimeAPI != "" {
		network, address, err := config.ParseAddress(a.conf.HAProxy.RuntimeAPI)
		if err != nil {
			return fmt.Errorf("haproxy.runtime_api: %w", err)
		}
		a.runtime = &haproxy.Runtime{Network: network, Address: address, Poll: a.conf.HAProxy.Poll, Decider: a.decider, Log: a.log, Members: a.members}
		go a.runtime.Run(ctx)
	}
	go a.engines.Run(ctx)
	go a.tick(ctx)
	a.look(a.conf)

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	a.notify(daemon.SdNotifyReady)
	a.log.Info("deciding", "version", version, "config", a.path, "pools", len(a.decider.Pools()))
	for {
		select {
		case err := <-a.failed:
			a.stop()
			return err
		case f := <-a.found:
			a.take(ctx, f)
		case s := <-signals:
			if s == syscall.SIGHUP {
				a.reload()
				continue
			}
			a.log.Info("draining", "signal", s.String())
			a.stop()
			return nil
		}
	}
}

// start opens the sockets and serves them.
func (a *agent) start() error {
	handed := inherited()
	l := a.conf.Listen
	type server struct {
		name, address string
		serve         func(net.Listener) error
	}
	servers := []server{
		{"spoe", l.SPOE, a.spoe.Serve},
		{"feed", l.Feed, a.feed.Serve},
		{"admin", l.Admin, func(l net.Listener) error { return a.admin.Serve(a.adminConns.Listener(l)) }},
	}
	if a.nginx != nil {
		servers = append(servers, server{"nginx", l.Nginx, a.nginx.agent.Serve})
	}
	for _, s := range servers {
		if s.address == "" {
			continue
		}
		ls, err := handed.listen(s.name, s.address)
		delete(handed.listeners, s.name)
		if err != nil {
			a.stop()
			return err
		}
		for _, l := range ls {
			a.log.Info("listening", "for", s.name, "address", l.Addr().String())
			go func() {
				if err := s.serve(l); err != nil && !errors.Is(err, spoa.ErrServerClosed) {
					a.failed <- fmt.Errorf("listen.%s: %w", s.name, err)
				}
			}()
		}
	}
	for name, ls := range handed.listeners {
		a.log.Warn("a socket from systemd is not served: it is off in the configuration, or its name is not known", "name", name)
		for _, l := range ls {
			l.Close()
		}
	}
	return a.witness(handed)
}

// witness opens the feed's port for datagrams too.
func (a *agent) witness(handed handed) error {
	network, address, err := config.ParseAddress(a.conf.Listen.Feed)
	if err != nil || network != "tcp" {
		return nil // off, or a path: datagrams to one are lost too easily
	}
	c, err := handed.listenPacket(address)
	if err != nil {
		a.stop()
		return fmt.Errorf("listen.feed, for datagrams: %w", err)
	}
	read := a.feed.Witness
	if a.nginx != nil {
		read = a.nginx.feed.Serve // and hands on what is HAProxy's
	}
	go func() {
		if err := read(c); err != nil {
			a.failed <- fmt.Errorf("listen.feed, for datagrams: %w", err)
		}
	}()
	return nil
}

// tick does what is due now and then: ending leases, and telling systemd that
// the agent lives and its pools can be locked.
func (a *agent) tick(ctx context.Context) {
	watchdog, _ := daemon.SdWatchdogEnabled(false)
	pause := time.Second
	if watchdog > 0 {
		pause = min(pause, watchdog/3)
	}
	t := time.NewTicker(pause)
	defer t.Stop()
	release := time.NewTimer(releaseEvery)
	defer release.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-release.C:
			next := pause // a reload may begin to hold
			if a.decider.HoldsRequests() {
				a.decider.Dispatch()
				next = releaseEvery
			}
			release.Reset(next)
		case <-t.C:
			a.decider.Sweep()
			a.feed.Recover(time.Now())
			if a.nginx != nil {
				a.nginx.servers.Refresh()
			}
			if watchdog > 0 {
				a.notify(daemon.SdNotifyWatchdog)
			}
		}
	}
}

// reload applies the file as it is now, or refuses it and keeps the old one.
func (a *agent) reload() {
	a.notify(daemon.SdNotifyReloading)
	defer a.notify(daemon.SdNotifyReady)
	next, err := load(a.path)
	if err != nil {
		a.log.Error("reload refused, the old configuration stays", "error", err)
		return
	}
	if keys := a.conf.Diff(next); len(keys) > 0 {
		a.log.Error("reload refused, the old configuration stays: these need a restart", "keys", keys)
		return
	}
	dc, err := a.deciderConfig(next)
	if err != nil {
		a.log.Error("reload refused, the old configuration stays", "error", err)
		return
	}
	a.decider.Apply(dc)
	a.engines.Configure(engineOptions(next))
	a.spoe.SetMaxConns(maxConns(next))
	a.conf = next
	a.forgetSources(next)
	a.look(next)
	if a.nginx != nil {
		a.nginx.reload(next)
	}
	a.log.Info("reloaded", "config", a.path, "pools", len(a.decider.Pools()))
	for _, w := range warnings(next) {
		a.log.Warn(w.Error())
	}
}

// stop lets the decisions under way finish, then closes everything. The proxy
// goes on by itself.
func (a *agent) stop() {
	a.notify(daemon.SdNotifyStopping)
	a.admin.Drain()
	for _, stop := range a.watch {
		stop()
	}
	a.decider.Drain() // what is held is answered now
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.spoe.Shutdown(ctx); err != nil {
		a.log.Warn("decisions under way were cut off", "error", err)
	}
	if a.nginx != nil {
		a.nginx.stop(ctx, a.log)
	}
	a.feed.Close()
	if err := a.admin.Shutdown(); err != nil {
		a.log.Debug("admin shutdown", "error", err)
	}
}

func (a *agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.log.Debug("systemd cannot be told", "error", err)
	}
}

// exportSPOE makes metrics of what the SPOE server counts.
func exportSPOE(set *metrics.Set, s *spoa.Server) {
	gauge := func(name string, f func(spoa.Stats) float64) {
		set.NewGauge(name, func() float64 { return f(s.Stats()) })
	}
	gauge("pointsman_spoe_connections", func(s spoa.Stats) float64 { return float64(s.Open) })
	gauge("pointsman_spoe_accepted_total", func(s spoa.Stats) float64 { return float64(s.Accepted) })
	gauge("pointsman_spoe_refused_total", func(s spoa.Stats) float64 { return float64(s.Refused) })
	gauge("pointsman_spoe_frames_total", func(s spoa.Stats) float64 { return float64(s.Frames) })
	gauge("pointsman_spoe_messages_total", func(s spoa.Stats) float64 { return float64(s.Messages) })
	gauge("pointsman_spoe_malformed_total", func(s spoa.Stats) float64 { return float64(s.Malformed) })
	gauge("pointsman_spoe_panics_total", func(s spoa.Stats) float64 { return float64(s.Panics) })
	gauge("pointsman_spoe_dropped_variables_total", func(s spoa.Stats) float64 { return float64(s.Dropped) })
}
