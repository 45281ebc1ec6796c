package engine

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/engine/kvevents"
	"pointsman/engine/metrics"
)

// PoolOptions say what the engines of a pool are.
type PoolOptions struct {
	Kind metrics.Kind // metrics.Unknown: found out
	// Metrics is where their metrics are, as "/metrics" or ":8002/metrics"; "off"
	// is nowhere, "" where engines of the kind have them.
	Metrics string
	Events  EventOptions
	// Replicas are the events of replicas, by name, that have their own.
	Replicas map[string]EventOptions
}

// events are the options for a replica.
func (o PoolOptions) events(replica string) EventOptions {
	if own, ok := o.Replicas[replica]; ok {
		return own
	}
	return o.Events
}

// EventOptions say where the engines of a pool publish the events of their KV
// caches: on ports of their own, or to us.
type EventOptions struct {
	Port   int    // of the first rank, those of the others follow; 0 = they do not
	Replay int    // port of the first rank's replay socket; 0 = there is none
	Ranks  int    // of data parallelism behind one address; 0 = 1
	Bind   string // host:port to listen on for engines that connect by themselves
}

// lookout is how often the membership of the pools is looked at.
const lookout = time.Second

// Watch follows the engines of a decider's pools, as their replicas come and go.
// Its methods are safe for concurrent use.
type Watch struct {
	decider *decider.Decider
	log     *slog.Logger
	poller  *metrics.Poller
	running sync.WaitGroup

	mu        sync.Mutex             // guards what follows
	options   map[string]PoolOptions // by pool
	scrapers  map[follower]*metrics.Scraper
	indexes   map[follower]*index
	listeners map[bound]context.CancelFunc
}

// index is the index of a replica's blocks, and what ends its followers.
type index struct {
	*kvevents.Index
	stop context.CancelFunc
}

// bound is where a pool's engines connect to.
type bound struct {
	pool    *decider.Pool
	address string
}

// follower says whom a scraper follows, and how.
type follower struct {
	pool             *decider.Pool
	replica, address string
	kind             metrics.Kind
	metrics          string
	events           EventOptions
}

// NewWatch returns a Watch that tells d, reports to set and logs what changes.
func NewWatch(d *decider.Decider, set *vm.Set, log *slog.Logger) *Watch {
	return &Watch{
		decider: d, log: log, poller: metrics.NewPoller(set, log),
		scrapers:  map[follower]*metrics.Scraper{},
		indexes:   map[follower]*index{},
		listeners: map[bound]context.CancelFunc{},
	}
}

// Configure sets the options of the pools by their names. A pool that is not
// named is not listened to.
func (w *Watch) Configure(options map[string]PoolOptions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options = options
}

// Run follows the engines until ctx ends, and returns when all is quiet.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(lookout)
	defer tick.Stop()
	defer w.running.Wait()
	w.look(ctx)
	w.running.Go(func() { w.poller.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// look starts scrapers for the replicas that are new, and ends those of the
// ones that are gone.
func (w *Watch) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[follower]bool{}
	bind := map[bound]bool{}
	for _, p := range w.decider.Pools() {
		o, ok := w.options[p.Name()]
		if !ok {
			continue
		}
		tokens := p.Tokens()
		for _, m := range p.Members() {
			if m.Address == "" {
				continue
			}
			f := follower{p, m.Name, m.Address, o.Kind, o.Metrics, o.events(m.Name)}
			there[f] = true
			if w.scrapers[f] == nil && o.Metrics != "off" {
				w.scrapers[f] = w.poller.Add(p, m.Name, m.Address, metrics.Options{Kind: o.Kind, Path: o.Metrics},
					func(names []string) { w.decider.Adapters(p, m.Name, names) })
			}
			if w.indexes[f] == nil && tokens != nil && (f.events.Port > 0 || o.Events.Bind != "") {
				w.followBlocks(ctx, f, tokens.BlockTokens)
			}
		}
		if b := (bound{p, o.Events.Bind}); tokens != nil && o.Events.Bind != "" {
			bind[b] = true
			if w.listeners[b] == nil {
				own, stop := context.WithCancel(ctx)
				w.listeners[b] = stop
				w.running.Go(func() { w.listen(own, b) })
			}
		}
	}
	for f, s := range w.scrapers {
		if !there[f] {
			w.poller.Remove(s)
			delete(w.scrapers, f)
		}
	}
	for f, m := range w.indexes {
		if !there[f] || f.pool.Tokens() == nil {
			m.stop()
			delete(w.indexes, f)
		}
	}
	for b, stop := range w.listeners {
		if !bind[b] {
			stop()
			delete(w.listeners, b)
		}
	}
}

// followBlocks begins to follow the events of one replica. The caller holds
// the lock.
func (w *Watch) followBlocks(ctx context.Context, f follower, blockTokens int) {
	own, stop := context.WithCancel(ctx)
	x := kvevents.NewIndex(f.pool, f.replica, blockTokens)
	w.indexes[f] = &index{x, stop}
	o := f.events
	host, _, err := net.SplitHostPort(f.address)
	if err != nil || o.Port == 0 {
		return // those that connect by themselves are awaited
	}
	log := func(msg string, err error) {
		w.log.Warn(msg, "pool", f.pool.Name(), "replica", f.replica, "error", err)
	}
	for rank := range max(1, o.Ranks) {
		events, replay := net.JoinHostPort(host, strconv.Itoa(o.Port+rank)), ""
		if o.Replay > 0 {
			replay = net.JoinHostPort(host, strconv.Itoa(o.Replay+rank))
		}
		w.running.Go(func() { x.Follow(own, events, replay, log) })
	}
}

// listen takes in the events of engines that connect to b by themselves.
func (w *Watch) listen(ctx context.Context, b bound) {
	l := kvevents.Listener{
		Address: b.address, Log: w.log.With("pool", b.pool.Name()),
		Find: func(topic string) (*kvevents.Index, string) { return w.publisher(b.pool, topic) },
	}
	l.Run(ctx)
}

// publisher finds the replica of a topic. An engine says in the topic who it is:
// its replica's name, address or host, or the like between two signs @, as in
// "kv@10.0.0.1:8000@model".
func (w *Watch) publisher(pool *decider.Pool, topic string) (x *kvevents.Index, replay string) {
	if parts := strings.Split(topic, "@"); len(parts) > 1 {
		topic = parts[1]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for f, m := range w.indexes {
		host, _, err := net.SplitHostPort(f.address)
		if f.pool != pool || topic != f.replica && topic != f.address && topic != host {
			continue
		}
		if err == nil && f.events.Replay > 0 {
			replay = net.JoinHostPort(host, strconv.Itoa(f.events.Replay))
		}
		return m.Index, replay
	}
	return nil, ""
}

// Status is what is known of the signals of one replica, for operators.
type Status struct {
	metrics.Status
	// Blocks is what the events of the KV cache tell; nil where none are followed.
	Blocks *kvevents.Status `json:"blocks,omitempty"`
}

// Status tells of each replica that is followed, by pool and name.
func (w *Watch) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Status, 0, len(w.scrapers))
	seen := map[follower]bool{}
	for f, s := range w.scrapers {
		st := Status{Status: s.Status()}
		if x := w.indexes[f]; x != nil {
			b := x.Status()
			st.Blocks = &b
		}
		list, seen[f] = append(list, st), true
	}
	for f, x := range w.indexes {
		if !seen[f] {
			b := x.Status()
			list = append(list, Status{metrics.Status{Pool: f.pool.Name(), Replica: f.replica, Address: f.address, Age: -1, HitRate: -1}, &b})
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}
