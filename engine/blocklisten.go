package engine

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// maxPublishers bounds the connections to one address that engines publish to.
var maxPublishers int32 = 1024 // a variable for tests

// listen takes in the events of engines that connect to b by themselves. An
// engine says in the topic who it is: its replica's name, address or host, or
// the like between two signs @, as in "kv@10.0.0.1:8000@model".
func (w *Watch) listen(ctx context.Context, b bound) {
	var open atomic.Int32
	for ctx.Err() == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", b.address)
		if err != nil {
			w.report.log.Warn("engines cannot connect to publish their KV-cache events", "pool", b.pool.Name(), "error", err)
			wait(ctx, lastBackOff)
			continue
		}
		stop := context.AfterFunc(ctx, func() { l.Close() })
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			if open.Add(1) > maxPublishers {
				open.Add(-1)
				conn.Close()
				continue
			}
			w.running.Go(func() {
				defer open.Add(-1)
				w.welcome(ctx, b, conn)
			})
		}
		stop()
		l.Close()
		wait(ctx, firstBackOff) // there may be no descriptors left
	}
}

// welcome follows the events of one engine that has connected.
func (w *Watch) welcome(ctx context.Context, b bound, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	peer, err := newZMTPPeer(conn, "SUB", dialTimeout)
	if err != nil || peer.subscribe() != nil {
		return
	}
	frames, err := peer.receive() // it may be long until there is something to tell
	if err != nil || len(frames) != 3 {
		return
	}
	f, m := w.publisher(b, string(frames[0]))
	if m == nil {
		w.report.log.Warn("KV-cache events of an engine that is none of the pool's", "pool", b.pool.Name(), "topic", string(frames[0][:min(len(frames[0]), 200)]))
		return
	}
	follow := &blockFollower{rank: m.newRank(), log: w.blockLog(f)}
	if host, _, err := net.SplitHostPort(f.address); err == nil && f.events.Replay > 0 {
		follow.replay = net.JoinHostPort(host, strconv.Itoa(f.events.Replay))
	}
	follow.ask = follow.askReplay
	defer m.end()
	defer m.forget(follow.rank)
	_ = follow.take(ctx, peer, frames)
}

// publisher finds the replica of a topic.
func (w *Watch) publisher(b bound, topic string) (follower, *blockImage) {
	if parts := strings.Split(topic, "@"); len(parts) > 1 {
		topic = parts[1]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for f, m := range w.images {
		host, _, _ := net.SplitHostPort(f.address)
		if f.pool == b.pool && (topic == f.replica || topic == f.address || topic == host) {
			return f, m
		}
	}
	return follower{}, nil
}
