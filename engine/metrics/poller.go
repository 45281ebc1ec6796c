package metrics

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

const (
	// grid is what the times of scrapes are rounded to, so that a few are done at
	// once. There are coarse of them in the shortest pause.
	grid   = 33 * time.Millisecond
	coarse = 3
	// sway is by how much a round comes late, by chance, so that engines are not
	// asked in step with whatever else is done regularly.
	sway = grid / 8
)

// looks are how long after asking answers are looked for. Those that have not
// come by then are looked for once a grid.
var looks = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}

// Poller scrapes engines: in each round it asks those that are due, and takes in
// what has come. One goroutine does it for all of them: to be woken up for one
// scrape costs as much as the scrape. Its methods are safe for concurrent use.
type Poller struct {
	report  *report
	fetcher func(address string) fetcher

	mu       sync.Mutex                 // of Add and Remove
	scrapers atomic.Pointer[[]*Scraper] // replaced as a whole
}

// NewPoller returns a Poller that counts in set and logs what changes.
func NewPoller(set *metrics.Set, log *slog.Logger) *Poller {
	p := &Poller{report: newReport(set, log), fetcher: func(address string) fetcher { return newHTTPFetcher(address) }}
	p.scrapers.Store(&[]*Scraper{})
	return p
}

// Add begins to scrape a replica of pool. listed is called with the adapters that
// the engine lists among its models, by the goroutine of Run.
func (p *Poller) Add(pool *decider.Pool, replica, address string, o Options, listed func(names []string)) *Scraper {
	s := newScraper(pool, replica, address, o, p.fetcher(address), p.report)
	s.listed = listed
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(slices.Clone(*p.scrapers.Load()), s)
	p.scrapers.Store(&list)
	return s
}

// Remove ends the scraping of a replica.
func (p *Poller) Remove(s *Scraper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.gone.Store(true)
	list := slices.DeleteFunc(slices.Clone(*p.scrapers.Load()), func(x *Scraper) bool { return x == s })
	p.scrapers.Store(&list)
}

// Run scrapes until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	var known *[]*Scraper
	var list []*Scraper
	defer func() {
		for _, s := range list {
			s.fetch.close()
		}
	}()
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	// until waits for a time after the start.
	until := func(at time.Duration) bool {
		timer.Reset(at - time.Since(start))
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		}
	}
	for at := time.Duration(0); until(at); {
		if current := p.scrapers.Load(); current != known {
			for _, s := range list {
				if s.gone.Load() {
					s.fetch.close()
				}
			}
			known, list = current, *current
		}
		now := time.Since(start)
		pending := false // of what is asked now
		for _, s := range list {
			s.look(at, now)
			pending = s.ask(now) || pending
		}
		for _, after := range looks {
			if !pending {
				break
			}
			if !until(now + after) {
				return
			}
			pending = false
			then := time.Since(start)
			for _, s := range list {
				pending = s.look(now+after, then) && s.asked == now || pending
			}
		}
		at = now + shortestPause
		for _, s := range list {
			at = min(at, s.next(now))
		}
		at = max(at, now+grid/2).Round(grid) + rand.N(sway)
	}
}
