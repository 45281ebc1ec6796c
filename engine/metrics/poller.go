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
	// tick is what the times of scrapes are rounded to, so that several are done in
	// one round. There are ticksPerPause of them in minPause.
	tick          = 33 * time.Millisecond
	ticksPerPause = 3
	// roundJitter is the largest random delay of a round, so that rounds do not keep
	// step with other periodic work.
	roundJitter = tick / 8
)

// pollDelays are the times after sending at which answers are polled. Later answers
// are polled in each round.
var pollDelays = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}

// Poller scrapes engines in rounds: in each it sends the requests that are due and
// polls for the answers. One goroutine serves all engines, as waking one up for each
// answer costs as much as the scrape. Its methods are safe for concurrent use.
type Poller struct {
	report  *report
	fetcher func(address string) fetcher

	mu       sync.Mutex                 // held by Add and Remove
	scrapers atomic.Pointer[[]*Scraper] // the slice is replaced, never changed
}

// NewPoller returns a Poller that counts in set and logs what changes.
func NewPoller(set *metrics.Set, log *slog.Logger) *Poller {
	p := &Poller{report: newReport(set, log), fetcher: func(address string) fetcher { return newRawFetcher(address) }}
	p.scrapers.Store(&[]*Scraper{})
	return p
}

// Add starts scraping a replica of pool.
func (p *Poller) Add(pool *decider.Pool, replica, address string, o Options, events Events) *Scraper {
	s := newScraper(pool, replica, address, o, p.fetcher(address), p.report)
	s.events = events
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(slices.Clone(*p.scrapers.Load()), s)
	p.scrapers.Store(&list)
	return s
}

// Remove stops scraping a replica.
func (p *Poller) Remove(s *Scraper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.removed.Store(true)
	list := slices.DeleteFunc(slices.Clone(*p.scrapers.Load()), func(x *Scraper) bool { return x == s })
	p.scrapers.Store(&list)
}

// Run scrapes until ctx ends. It closes all connections before it returns.
func (p *Poller) Run(ctx context.Context) {
	var known *[]*Scraper
	var list []*Scraper
	defer func() {
		for _, s := range list {
			s.fetcher.close()
		}
	}()
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	// until waits for a time since the start, and returns false when ctx ends.
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
				if s.removed.Load() {
					s.fetcher.close()
				}
			}
			known, list = current, *current
		}
		now := time.Since(start)
		pending := false // a request of this round has no answer
		for _, s := range list {
			s.poll(at, now)
			pending = s.sendDue(now) || pending
		}
		for _, after := range pollDelays {
			if !pending {
				break
			}
			if !until(now + after) {
				return
			}
			pending = false
			then := time.Since(start)
			for _, s := range list {
				pending = s.poll(now+after, then) && s.sentAt == now || pending
			}
		}
		at = now + minPause
		for _, s := range list {
			at = min(at, s.next(now))
		}
		at = max(at, now+tick/2).Round(tick) + rand.N(roundJitter)
	}
}
