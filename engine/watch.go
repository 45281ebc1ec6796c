package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/engine/kvevents"
	"pointsman/engine/metrics"
)

// checkEvery is how often the members of the pools are checked.
const checkEvery = time.Second

// Watch follows the engines of a decider's pools as replicas come and go. Its methods
// are safe for concurrent use.
type Watch struct {
	decider *decider.Decider
	log     *slog.Logger
	poller  *metrics.Poller
	running sync.WaitGroup

	// MaybeReplaced, unless nil, is called when the engine at an address may be another one
	// than before: it has restarted or, unless restarted, answers again after failures. It is
	// set before Run.
	MaybeReplaced func(address string, restarted bool)

	mu        sync.Mutex             // guards what follows
	options   map[string]PoolOptions // by pool
	scrapers  map[source]*metrics.Scraper
	indexes   map[source]*index
	listeners map[binding]context.CancelFunc
	memory    memory
}

// source is a replica with the options for following it. When an option changes, the
// replica is followed as a new source.
type source struct {
	pool             *decider.Pool
	replica, address string
	kind             metrics.Kind
	metrics          string
	events           EventOptions
	rank             metrics.Rank
}

// NewWatch returns a Watch of d's pools. It registers its metrics in set.
func NewWatch(d *decider.Decider, set *vm.Set, log *slog.Logger) *Watch {
	return &Watch{
		decider: d, log: log, poller: metrics.NewPoller(set, log),
		scrapers:  map[source]*metrics.Scraper{},
		indexes:   map[source]*index{},
		listeners: map[binding]context.CancelFunc{},
	}
}

// Configure sets the options of the pools by name. The engines of other pools are not
// followed.
func (w *Watch) Configure(options map[string]PoolOptions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options = options
}

// Run follows the engines until ctx ends. It returns when all connections are closed.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	defer w.running.Wait()
	w.check(ctx)
	w.running.Go(func() { w.poller.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.check(ctx)
		}
	}
}

func (w *Watch) maybeReplaced(address string, restarted bool) {
	if w.MaybeReplaced != nil {
		w.MaybeReplaced(address, restarted)
	}
}

// check starts following new replicas and options of the pools, and stops following those
// that are gone.
func (w *Watch) check(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sources, bindings := map[source]bool{}, map[binding]bool{}
	for _, p := range w.decider.Pools() {
		o, ok := w.options[p.Name()]
		if !ok {
			continue
		}
		w.remember(p)
		tokens := p.Tokens() // nil: the policy does not compare tokens
		for _, m := range p.Members() {
			if m.Address == "" {
				continue
			}
			s := source{p, m.Name, m.Address, o.Kind, o.Metrics, o.events(m.Name), o.Ranks[m.Name]}
			sources[s] = true
			if w.scrapers[s] == nil && o.Metrics != "off" {
				w.scrapers[s] = w.poller.Add(p, m.Name, m.Address, metrics.Options{Kind: o.Kind, Path: o.Metrics, Rank: s.rank}, metrics.Events{
					Adapters:      func(names []string) { w.decider.Adapters(p, m.Name, names) },
					ModelsUnknown: func() { w.decider.ModelsUnknown(p, m.Name) },
					MaybeReplaced: func(restarted bool) { w.maybeReplaced(m.Address, restarted) },
				})
			}
			if tokens != nil && (s.events.Port > 0 || o.Events.Bind != "") {
				w.followBlocks(ctx, s, tokens.BlockTokens)
			}
		}
		if b := (binding{p, o.Events.Bind}); tokens != nil && b.address != "" {
			bindings[b] = true
			if w.listeners[b] == nil {
				w.listen(ctx, b)
			}
		}
	}
	w.stopOthers(sources, bindings)
}

// stopOthers stops following all but the given sources and bindings. The caller holds
// the lock.
func (w *Watch) stopOthers(sources map[source]bool, bindings map[binding]bool) {
	for s, scraper := range w.scrapers {
		if !sources[s] {
			w.poller.Remove(scraper)
			delete(w.scrapers, s)
		}
	}
	for s, x := range w.indexes {
		if !sources[s] || s.pool.Tokens() == nil {
			x.stop()
			delete(w.indexes, s)
		}
	}
	for b, stop := range w.listeners {
		if !bindings[b] {
			stop()
			delete(w.listeners, b)
		}
	}
}

// Status describes the signals of one replica, for operators.
type Status struct {
	metrics.Status
	// Blocks is the state of its KV-cache events; nil if they are not followed.
	Blocks *kvevents.Status `json:"blocks,omitempty"`
}

// Status returns the state of each replica that is followed, sorted by pool and name.
func (w *Watch) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Status, 0, len(w.scrapers))
	for s, scraper := range w.scrapers {
		st := Status{Status: scraper.Status()}
		if x := w.indexes[s]; x != nil {
			b := x.Status()
			st.Blocks = &b
		}
		list = append(list, st)
	}
	for s, x := range w.indexes {
		if w.scrapers[s] == nil {
			b := x.Status()
			list = append(list, Status{metrics.Status{Pool: s.pool.Name(), Replica: s.replica, Address: s.address, Age: -1, HitRate: -1}, &b})
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}
