package kvevents

import (
	"context"
	"log/slog"
	"net"
	"time"

	"pointsman/engine/zmtp"
	"pointsman/listen"
)

// maxPublishers bounds the connections of engines to one address.
var maxPublishers = 1024 // a variable for tests

// Listener follows the events of engines that connect to us. Its fields are set
// before Run.
type Listener struct {
	Address string // host:port
	// Find returns the index of the engine that publishes under a topic and the
	// address of its replay socket ("" = none), or nil for an unknown engine.
	Find func(topic string) (x *Index, replay string)
	Log  *slog.Logger
}

// Run listens until ctx ends, and returns when all connections are closed. It
// retries while it cannot listen on the address.
func (l *Listener) Run(ctx context.Context) {
	group := listen.NewGroup("kv_events", maxPublishers, l.Log)
	server := &zmtp.Server{Kind: "SUB", Timeout: dialTimeout, Handle: func(c *zmtp.Conn) { l.welcome(ctx, c) }}
	defer server.Close()
	for ctx.Err() == nil {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.Address)
		if err != nil {
			l.Log.Warn("cannot listen for KV-cache events", "address", l.Address, "error", err)
			wait(ctx, lastBackOff)
			continue
		}
		stop := context.AfterFunc(ctx, server.Close)
		_ = server.Serve(group.Listener(listener))
		stop()
		wait(ctx, firstBackOff)
	}
}

// welcome follows the events of one engine that has connected.
func (l *Listener) welcome(ctx context.Context, peer *zmtp.Conn) {
	if peer.Subscribe() != nil {
		return
	}
	frames, err := peer.Receive() // the first batch may take long
	if err != nil || len(frames) != 3 {
		return
	}
	x, replay := l.Find(string(frames[0]))
	if x == nil {
		l.Log.Warn("KV-cache events of an unknown engine", "topic", string(frames[0][:min(len(frames[0]), 200)]))
		return
	}
	if x.ctx != nil {
		defer context.AfterFunc(x.ctx, func() { peer.Close() })()
	}
	name := ""
	if replay != "" { // which shows whether it is the same rank of the same run
		name = "replay " + replay
	}
	follow := &subscriber{rank: x.newRank(name), replay: replay, log: func(msg string, err error) { l.Log.Warn(msg, "replica", x.replica, "error", err) }}
	follow.replayer = follow.replayOnce
	defer x.stopFollowing()
	defer x.removeRank(follow.rank)
	_ = follow.receive(ctx, peer, frames)
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
