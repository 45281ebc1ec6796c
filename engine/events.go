package engine

import (
	"context"
	"net"
	"strconv"
	"strings"

	"pointsman/decider"
	"pointsman/engine/kvevents"
)

// index is the index of a replica's blocks, and what ends its subscriptions.
type index struct {
	*kvevents.Index
	stop context.CancelFunc
	said bool // it was logged that its events cannot be used
}

// binding is an address of ours that the engines of a pool connect to.
type binding struct {
	pool    *decider.Pool
	address string
}

// followBlocks makes sure that the events of one replica are followed, in blocks of that
// size. The caller holds the lock.
func (w *Watch) followBlocks(ctx context.Context, s source, blockTokens int) {
	x := w.indexes[s]
	if x != nil && x.BlockTokens() != blockTokens {
		w.log.Info("KV-cache blocks have another size now; learning them anew", "pool", s.pool.Name(), "replica", s.replica, "block_tokens", blockTokens)
		x.stop()
		x = nil
	}
	if x == nil {
		w.follow(ctx, s, blockTokens)
		return
	}
	if st := x.Status(); st.Blocks == 0 && st.Strange > 0 && !x.said {
		x.said = true
		w.log.Warn("KV-cache events cannot be used, the cache is predicted: the blocks are of another size than most of the pool's engines have, or smaller than 4 tokens, or of adapters without names",
			"pool", s.pool.Name(), "replica", s.replica, "block_tokens", blockTokens)
	}
	scraper := w.scrapers[s]
	if scraper == nil {
		return
	}
	if size := scraper.Status().Cache; x.CheckSize(size) {
		w.log.Warn("an engine has reported more KV-cache blocks than its cache holds; learning them anew", "pool", s.pool.Name(), "replica", s.replica, "cache_tokens", size)
	}
}

// follow starts following the events of one replica. The caller holds the lock.
func (w *Watch) follow(ctx context.Context, s source, blockTokens int) {
	own, stop := context.WithCancel(ctx)
	x := kvevents.NewIndex(own, s.pool, s.replica, blockTokens)
	w.indexes[s] = &index{Index: x, stop: stop}
	w.recall(s, x)
	host, _, err := net.SplitHostPort(s.address)
	if err != nil || s.events.Port == 0 {
		return // the engine connects to us
	}
	log := func(msg string, err error) {
		w.log.Warn(msg, "pool", s.pool.Name(), "replica", s.replica, "error", err)
	}
	for rank := range max(1, s.events.Ranks) {
		events, replay := net.JoinHostPort(host, strconv.Itoa(s.events.Port+rank)), ""
		if s.events.Replay > 0 {
			replay = net.JoinHostPort(host, strconv.Itoa(s.events.Replay+rank))
		}
		w.running.Go(func() { x.Follow(own, events, replay, log) })
	}
}

// listen starts accepting engines that connect to b. The caller holds the lock.
func (w *Watch) listen(ctx context.Context, b binding) {
	own, stop := context.WithCancel(ctx)
	w.listeners[b] = stop
	l := kvevents.Listener{
		Address: b.address, Log: w.log.With("pool", b.pool.Name()),
		Find: func(topic string) (*kvevents.Index, string) { return w.find(b.pool, topic) },
	}
	w.running.Go(func() { l.Run(own) })
}

// find returns the index of the replica that publishes under a topic, and the address of
// its replay socket. The topic is the replica's name, address or host, or has it between
// the first two signs @, as in "kv@10.0.0.1:8000@model". A host that several replicas share
// identifies none of them.
func (w *Watch) find(pool *decider.Pool, topic string) (x *kvevents.Index, replay string) {
	if parts := strings.Split(topic, "@"); len(parts) > 1 {
		topic = parts[1]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var onHost []source
	for s, x := range w.indexes {
		host, _, _ := net.SplitHostPort(s.address)
		switch {
		case s.pool != pool:
		case topic == s.replica || topic == s.address:
			return x.Index, s.replay()
		case topic == host:
			onHost = append(onHost, s)
		}
	}
	switch len(onHost) {
	case 0:
		return nil, ""
	case 1:
		return w.indexes[onHost[0]].Index, onHost[0].replay()
	}
	w.log.Warn("KV-cache events name a host that several replicas share; have each engine publish under its own host:port",
		"pool", pool.Name(), "host", topic, "replicas", len(onHost))
	return nil, ""
}

// replay is the address of the replay socket of s, "" for none.
func (s *source) replay() string {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil || s.events.Replay == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(s.events.Replay))
}
