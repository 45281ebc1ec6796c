package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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

	mu       sync.Mutex
	options  map[string]PoolOptions // by pool
	scrapers map[follower]*scraper
	running  sync.WaitGroup
}

// follower says whom a scraper follows, and how.
type follower struct {
	pool             *decider.Pool
	replica, address string
	options          PoolOptions
}

// NewWatch returns a Watch that tells d, reports to set and logs what changes.
func NewWatch(d *decider.Decider, set *metrics.Set, log *slog.Logger) *Watch {
	return &Watch{
		decider: d, report: newReport(set, log),
		fetcher:  func(address string) fetcher { return newHTTPFetcher(address) },
		scrapers: map[follower]*scraper{},
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
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look starts scrapers for the replicas that are new, and ends those of the
// ones that are gone.
func (w *Watch) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[follower]bool{}
	for _, p := range w.decider.Pools() {
		o, ok := w.options[p.Name()]
		if !ok || o.Metrics == "off" {
			continue
		}
		for _, m := range p.Members() {
			if m.Address == "" {
				continue
			}
			f := follower{p, m.Name, m.Address, o}
			there[f] = true
			if w.scrapers[f] != nil {
				continue
			}
			s := newScraper(p, m.Name, m.Address, o, w.fetcher(m.Address), w.report)
			own, stop := context.WithCancel(ctx)
			s.stop = stop
			w.scrapers[f] = s
			w.running.Go(func() { s.run(own) })
		}
	}
	for f, s := range w.scrapers {
		if !there[f] {
			s.stop()
			delete(w.scrapers, f)
		}
	}
}

// Status tells of each replica that is followed, by pool and name.
func (w *Watch) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Status, 0, len(w.scrapers))
	for _, s := range w.scrapers {
		list = append(list, s.status())
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Replica, b.Replica))
	})
	return list
}
