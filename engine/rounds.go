package engine

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
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

// rounds goes round the engines: it asks those that are due, and takes in what
// has come. One goroutine does it for all of them: to be woken up for one scrape
// costs as much as the scrape.
type rounds struct {
	scrapers atomic.Pointer[[]*scraper]
}

// run goes on until ctx ends.
func (r *rounds) run(ctx context.Context) {
	var known *[]*scraper
	var list []*scraper
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
		if current := r.scrapers.Load(); current != known {
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
