package kvevents

import (
	"context"
	"net"
	"time"

	"pointsman/engine/zmtp"
)

// maxPublishers bounds the connections to one address that engines publish to.
var maxPublishers = 1024 // a variable for tests

// Listener takes in the events of engines that connect by themselves. Its fields
// are set before Run.
type Listener struct {
	Address string // host:port
	// Find returns the index of the engine that publishes under a topic, and where
	// its replay socket is ("" = nowhere), or nil for an engine that is unknown.
	Find func(topic string) (x *Index, replay string)
	// Log logs what goes wrong.
	Log func(msg string, args ...any)
}

// Run listens until ctx ends, and returns when all connections are closed. While
// the address is not to be had it tries again.
func (l *Listener) Run(ctx context.Context) {
	server := &zmtp.Server{Kind: "SUB", Timeout: dialTimeout, MaxConns: maxPublishers, Handle: func(c *zmtp.Conn) { l.welcome(ctx, c) }}
	defer server.Close()
	for ctx.Err() == nil {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.Address)
		if err != nil {
			l.Log("engines cannot connect to publish their KV-cache events", "error", err)
			wait(ctx, lastBackOff)
			continue
		}
		stop := context.AfterFunc(ctx, server.Close)
		_ = server.Serve(listener)
		stop()
		wait(ctx, firstBackOff) // there may be no descriptors left
	}
}

// welcome follows the events of one engine that has connected.
func (l *Listener) welcome(ctx context.Context, peer *zmtp.Conn) {
	if peer.Subscribe() != nil {
		return
	}
	frames, err := peer.Receive() // it may be long until there is something to tell
	if err != nil || len(frames) != 3 {
		return
	}
	x, replay := l.Find(string(frames[0]))
	if x == nil {
		l.Log("KV-cache events of an engine that is none of the pool's", "topic", string(frames[0][:min(len(frames[0]), 200)]))
		return
	}
	follow := &blockFollower{rank: x.newRank(), replay: replay, log: func(msg string, err error) { l.Log(msg, "replica", x.replica, "error", err) }}
	follow.ask = follow.askReplay
	defer x.end()
	defer x.forget(follow.rank)
	_ = follow.take(ctx, peer, frames)
}

// wait waits, but not beyond ctx.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
