package engine

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

// PoolOptions say what the engines of a pool are.
type PoolOptions struct {
	Kind Kind // Unknown: found out
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

// told reports whether something is known of the engines beforehand.
func (o PoolOptions) told() bool { return o.Kind != Unknown || o.Metrics != "" }

func (o PoolOptions) paths() []string {
	if o.Metrics != "" {
		return []string{o.Metrics}
	}
	return o.Kind.paths()
}

// lookout is how often the membership of the pools is looked at.
const lookout = time.Second

// Watch follows the engines of a decider's pools: it has a scraper for each
// replica, as they come and go. Its methods are safe for concurrent use.
type Watch struct {
	decider *decider.Decider
	report  *report
	fetcher func(address string) fetcher
	rounds  rounds

	mu        sync.Mutex
	options   map[string]PoolOptions // by pool
	scrapers  map[follower]*scraper
	images    map[follower]*blockImage
	listeners map[bound]context.CancelFunc
	running   sync.WaitGroup
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
	kind             Kind
	metrics          string
	events           EventOptions
}

// NewWatch returns a Watch that tells d, reports to set and logs what changes.
func NewWatch(d *decider.Decider, set *metrics.Set, log *slog.Logger) *Watch {
	return &Watch{
		decider: d, report: newReport(set, log),
		fetcher:   func(address string) fetcher { return newHTTPFetcher(address) },
		scrapers:  map[follower]*scraper{},
		images:    map[follower]*blockImage{},
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
	w.running.Go(func() { w.rounds.run(ctx) })
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
	changed := false // the scrapers
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
				s := newScraper(p, m.Name, m.Address, o, w.fetcher(m.Address), w.report)
				s.listed = func(names []string) { w.decider.Adapters(p, m.Name, names) }
				w.scrapers[f] = s
				changed = true
			}
			if w.images[f] == nil && tokens != nil && (f.events.Port > 0 || o.Events.Bind != "") {
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
			s.gone.Store(true)
			delete(w.scrapers, f)
			changed = true
		}
	}
	if list := slices.Collect(maps.Values(w.scrapers)); changed || w.rounds.scrapers.Load() == nil {
		w.rounds.scrapers.Store(&list)
	}
	for f, m := range w.images {
		if !there[f] || f.pool.Tokens() == nil {
			m.stop()
			delete(w.images, f)
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
	m := &blockImage{pool: f.pool, replica: f.replica, blockTokens: blockTokens, stop: stop}
	w.images[f] = m
	o := f.events
	host, _, err := net.SplitHostPort(f.address)
	if err != nil || o.Port == 0 {
		return // those that connect by themselves are awaited
	}
	for rank := range max(1, o.Ranks) {
		b := &blockFollower{rank: m.newRank(), events: net.JoinHostPort(host, strconv.Itoa(o.Port+rank)), log: w.blockLog(f)}
		if o.Replay > 0 {
			b.replay = net.JoinHostPort(host, strconv.Itoa(o.Replay+rank))
		}
		w.running.Go(func() { b.run(own) })
	}
}

// blockLog logs what goes wrong with a replica's events.
func (w *Watch) blockLog(f follower) func(string, error) {
	return func(msg string, err error) {
		w.report.log.Warn(msg, "pool", f.pool.Name(), "replica", f.replica, "error", err)
	}
}

// Status tells of each replica that is followed, by pool and name.
func (w *Watch) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Status, 0, len(w.scrapers))
	seen := map[follower]bool{}
	for f, s := range w.scrapers {
		st := s.status()
		if m := w.images[f]; m != nil {
			b := m.status()
			st.Blocks = &b
		}
		list, seen[f] = append(list, st), true
	}
	for f, m := range w.images {
		if !seen[f] {
			b := m.status()
			list = append(list, Status{Pool: f.pool.Name(), Replica: f.replica, Address: f.address, Age: -1, HitRate: -1, Blocks: &b})
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}
