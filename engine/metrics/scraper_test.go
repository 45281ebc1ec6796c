package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// fakeEngine is a fetcher that answers after the time takes with what page returns.
type fakeEngine struct {
	t     *testing.T
	takes time.Duration
	page  func() (string, error)
	// health answers /health; nil = there is none.
	health func() error
	// models answers /v1/models; nil = there is no such page.
	models func() (string, error)
	// gone reports whether its API servers have ended; nil = they have not.
	gone func() bool

	busy  bool
	mu    sync.Mutex // guards what follows
	asked []time.Time
	paths []string
}

// times is how often it was scraped.
func (e *fakeEngine) times() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

func (e *fakeEngine) send(path string) error {
	if e.busy {
		e.t.Error("two scrapes at once")
	}
	if path == "/v1/models" && e.models == nil || path == "/health" && e.health == nil {
		return errUnknown
	}
	e.busy = true
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, time.Now())
	e.paths = append(e.paths, path)
	return nil
}

func (e *fakeEngine) lost() bool { return e.gone != nil && e.gone() }

func (e *fakeEngine) poll() ([]byte, error) {
	if e.lost() {
		return nil, errPending
	}
	if time.Since(e.asked[len(e.asked)-1]) < e.takes {
		return nil, errPending
	}
	e.busy = false
	if e.paths[len(e.paths)-1] == "/health" {
		return nil, e.health()
	}
	answer := e.page
	if e.paths[len(e.paths)-1] == "/v1/models" {
		answer = e.models
	}
	page, err := answer()
	return []byte(page), err
}

func (e *fakeEngine) close() { e.busy = false }

// once scrapes once and returns the pause after it.
func once(s *Scraper) time.Duration {
	start := time.Now()
	s.due = 0
	for s.sendDue(time.Since(start)); s.poll(time.Since(start), time.Since(start)); {
		time.Sleep(time.Millisecond)
	}
	return time.Duration(s.Status().Pause * float64(time.Second))
}

// busy is the page of an engine where requests run and none waits.
func busy() (string, error) { return "vllm:num_requests_running 2\nvllm:num_requests_waiting 0\n", nil }

// rig is a Poller of fake engines in one pool.
type rig struct {
	pool     *decider.Pool
	poller   *Poller
	scrapers []*Scraper
	replaced int  // calls of MaybeReplaced
	restart  bool // the last one was for a restart
	log      strings.Builder
}

func newRig(o Options, engines ...*fakeEngine) *rig {
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	c := decider.PoolConfig{Name: "llama", Models: []string{"m"}, Policy: policy.LeastWork{}}
	byAddress := map[string]*fakeEngine{}
	for i, e := range engines {
		a := fmt.Sprintf("10.0.0.%d:8000", i+1)
		byAddress[a] = e
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: fmt.Sprintf("r%d", i+1), Address: a})
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	r := &rig{pool: d.Pool("llama")}
	r.poller = NewPoller(metrics.NewSet(), slog.New(slog.NewTextHandler(&r.log, nil)))
	r.poller.fetcher = func(address string) fetcher { return byAddress[address] }
	for _, m := range c.Replicas {
		r.scrapers = append(r.scrapers, r.poller.Add(r.pool, m.Name, m.Address, o, Events{
			Adapters: func([]string) {}, ModelsUnknown: func() { d.ModelsUnknown(r.pool, m.Name) },
			MaybeReplaced: func(restarted bool) { r.replaced, r.restart = r.replaced+1, restarted },
		}))
	}
	return r
}

// run scrapes the engines for d.
func (r *rig) run(d time.Duration) {
	ctx, stop := context.WithTimeout(context.Background(), d)
	defer stop()
	r.poller.Run(ctx)
}

func TestScrapeInterval(t *testing.T) {
	for _, c := range []struct {
		takes      time.Duration
		waiting    int
		counted    bool // first tokens
		low, high  int  // scrapes a minute
		everySlow  time.Duration
		everyQuick time.Duration
	}{
		{time.Millisecond, 1, false, 540, 640, 140 * time.Millisecond, 60 * time.Millisecond},
		{time.Millisecond, 0, false, 50, 70, 1200 * time.Millisecond, 800 * time.Millisecond},
		{time.Millisecond, 0, true, 210, 260, 315 * time.Millisecond, 185 * time.Millisecond},
		{50 * time.Millisecond, 1, false, 90, 120, 720 * time.Millisecond, 450 * time.Millisecond},
		{400 * time.Millisecond, 1, false, 11, 17, 5200 * time.Millisecond, 3700 * time.Millisecond},
		{time.Second, 1, false, 9, 12, 6700 * time.Millisecond, 5300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &fakeEngine{t: t, takes: c.takes}
			e.page = func() (string, error) {
				firsts := 0
				if c.counted {
					firsts = len(e.asked)
				}
				return fmt.Sprintf("vllm:num_requests_running 0\nvllm:num_requests_waiting %d\nvllm:time_to_first_token_seconds_count %d\n", c.waiting, firsts), nil
			}
			newRig(Options{}, e).run(time.Minute)
			if n := len(e.asked); n < c.low || n > c.high {
				t.Errorf("an engine that takes %v was scraped %d times in a minute, want %d to %d", c.takes, n, c.low, c.high)
			}
			gaps := map[time.Duration]bool{}
			for i := 2; i < len(e.asked); i++ {
				gap := e.asked[i].Sub(e.asked[i-1])
				gaps[gap] = true
				if gap < c.everyQuick || gap > c.everySlow {
					t.Errorf("an engine that takes %v was scraped again after %v", c.takes, gap)
				}
			}
			if len(gaps) < 2 {
				t.Errorf("%d different pauses of %d: no jitter", len(gaps), len(e.asked))
			}
		})
	}
}

// One slow scrape lengthens the pause at once; quick ones shorten it gradually.
func TestSlowsDownAtOnceAndSpeedsUpGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{t: t, takes: time.Millisecond, page: busy}
		s := newScraper(newRig(Options{}, e).pool, "r1", "", Options{}, e, newReport(metrics.NewSet(), slog.New(slog.DiscardHandler)))
		for range 3 {
			if p := once(s); p != calmPause {
				t.Fatalf("pauses for %v after a quick scrape", p)
			}
		}
		e.takes = 100 * time.Millisecond
		before := once(s)
		if before < 990*time.Millisecond || before > time.Second { // once polls every ms
			t.Fatalf("pauses for %v after a scrape of 100ms", before)
		}
		e.takes = time.Millisecond
		for i := 0; before > calmPause; i++ {
			p := once(s)
			if p >= before || p < before/2 || i > 20 {
				t.Fatalf("pauses for %v after %v", p, before)
			}
			before = p
		}
	})
}

// An idle engine is scraped often as soon as one of our requests waits there.
func TestScrapesOftenWhileARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{t: t, takes: time.Millisecond, page: func() (string, error) {
			return "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n", nil
		}}
		r := newRig(Options{}, e)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { r.poller.Run(ctx); close(done) }()
		defer func() { stop(); <-done }()
		for i := range 20 {
			time.Sleep(5*time.Second + time.Duration(i)*51*time.Millisecond)
			before := e.times()
			req := decider.Request{Pool: r.pool, ID: decider.ID{1}, Input: 700, Output: -1}
			var d decider.Decision
			r.pool.Decide(&req, &d)
			time.Sleep(time.Second)
			if n := e.times() - before; n < 8 || n > 12 {
				t.Errorf("scraped %d times in the first second that a request waits", n)
			}
			r.pool.Finished(decider.Outcome{ID: req.ID, End: decider.ClientGone})
		}
	})
}

func TestBacksOffAFailingEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		e := &fakeEngine{t: t, page: func() (string, error) { return "", broken }}
		hangs := &fakeEngine{t: t, takes: time.Hour, page: busy}
		well := &fakeEngine{t: t, takes: time.Millisecond, page: busy}
		r := newRig(Options{Kind: VLLM}, e, hangs, well)
		r.run(10 * time.Minute)
		for _, x := range []*fakeEngine{e, hangs} {
			if n := len(x.asked); n < 20 || n > 30 {
				t.Errorf("scraped %d times in ten minutes", n)
			}
			for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
				gap := x.asked[i+1].Sub(x.asked[i])
				if x == hangs {
					gap -= timeout
				}
				if want *= time.Second; gap < want*9/10-minPause || gap > want*11/10+minPause {
					t.Errorf("pauses for %v after %d failures, want %v", gap, i+1, want)
				}
			}
		}
		if n := len(well.asked); n < 2200 {
			t.Errorf("the healthy engine was scraped only %d times", n)
		}
		if n := strings.Count(r.log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

func TestScrapesAnEngineThatRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		e := &fakeEngine{t: t, takes: time.Millisecond, page: func() (string, error) {
			if time.Since(start) < time.Minute {
				return "", statusError(500)
			}
			return busy()
		}}
		r := newRig(Options{}, e)
		r.run(2 * time.Minute)
		after := 0
		for _, at := range e.asked {
			if at.Sub(start) > 95*time.Second {
				after++
			}
		}
		if after < 80 {
			t.Errorf("scraped %d times in the last 25 seconds", after)
		}
		if s := r.scrapers[0].Status(); s.Engine != "vllm" || s.Error != "" || s.Failures == 0 || s.Age < 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestTriesMetricsPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nothing := &fakeEngine{t: t, page: func() (string, error) { return "[]", nil }}
		r := newRig(Options{}, nothing)
		r.run(time.Hour)
		if n := len(nothing.asked); n < 11 || n > 16 {
			t.Errorf("a replica without metrics was scraped %d times in an hour", n)
		}
		if strings.Join(nothing.paths[:3], " ") != "/metrics /prometheus/metrics /metrics" {
			t.Errorf("tried %v", nothing.paths[:3])
		}
		if strings.Contains(r.log.String(), "WARN") {
			t.Errorf("warns about a replica that is not configured as an engine:\n%s", r.log.String())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		second := &fakeEngine{t: t, takes: time.Millisecond}
		second.page = func() (string, error) {
			if second.paths[len(second.paths)-1] == "/metrics" {
				return "", errUnknown
			}
			return "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 1\n", nil
		}
		r := newRig(Options{}, second)
		r.run(time.Minute)
		if n := len(second.asked); n < 200 {
			t.Errorf("scraped %d times", n)
		}
		if s := r.scrapers[0].Status(); s.Engine != "trtllm" || s.Path != "/prometheus/metrics" {
			t.Errorf("%+v", s)
		}
	})
}

func TestAddsAndRemovesReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeEngine{t: t, page: busy}, &fakeEngine{t: t, page: busy}
		r := newRig(Options{}, a, b)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { r.poller.Run(ctx); close(done) }()
		time.Sleep(10 * time.Second)
		r.poller.Remove(r.scrapers[0])
		time.Sleep(2 * time.Second)
		gone, stayed := a.times(), b.times()
		time.Sleep(10 * time.Second)
		if a.times() != gone || b.times() < stayed+35 {
			t.Errorf("the removed replica was scraped %d times more, the other %d", a.times()-gone, b.times()-stayed)
		}
		stop()
		<-done
	})
}

func TestReportsCounterIncreases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		firsts, prompts, hits, cache := 1000, 50_000, 9, 4096
		var mu sync.Mutex
		count := func(f, p, h int) {
			mu.Lock()
			defer mu.Unlock()
			firsts, prompts, hits = f, p, h
		}
		e := &fakeEngine{t: t, takes: time.Millisecond, page: func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf(`vllm:num_requests_running 3
vllm:num_requests_waiting 2
vllm:time_to_first_token_seconds_count %d
vllm:prompt_tokens_total %d
vllm:prefix_cache_hits_total %d
vllm:prefix_cache_queries_total %d
vllm:cache_config_info{block_size="16",num_gpu_blocks="%d"} 1
`, firsts, prompts, hits, prompts, cache), nil
		}}
		r := newRig(Options{}, e)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { r.poller.Run(ctx); close(done) }()
		defer func() { stop(); <-done }()
		time.Sleep(time.Second)
		req := decider.Request{Pool: r.pool, Input: 700, Output: -1}
		var d decider.Decision
		for i := range 5 {
			req.ID[0] = byte(i + 1)
			r.pool.Decide(&req, &d)
		}
		status := func() decider.ReplicaStatus { return r.pool.Status().Replicas[0] }
		time.Sleep(time.Second)
		if s := status(); s.Waiting != 5 || s.PromptTokens != 0 || s.CacheTokens != 16*4096 {
			t.Fatalf("before the engine counted anything: %+v", s)
		}
		count(firsts+2, prompts+1400, hits+700)
		time.Sleep(time.Second)
		if s := status(); s.Waiting != 3 || s.InFlight != 5 || s.PromptTokens != 1400 || s.HitTokens != 700 || s.QueryTokens != 1400 {
			t.Fatalf("after two first tokens: %+v", s)
		}
		count(1, 10, 0) // the engine has restarted
		time.Sleep(time.Second)
		if s := status(); s.Waiting != 3 || s.PromptTokens != 1400 || s.SignalAge > .3 {
			t.Fatalf("after a restart: %+v", s)
		}
		if s := r.scrapers[0].Status(); s.Restarts != 1 || !s.Firsts || !s.Prompts {
			t.Errorf("%+v", s)
		}
	})
}
