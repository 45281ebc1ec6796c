package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

// How often an engine is asked. Answering costs it time of the very process
// that serves requests: so it is given restFactor times as long to rest as its
// answer took. One that fails is left alone for longer and longer.
const (
	shortestPause = 100 * time.Millisecond
	// calmPause is for an engine where no request waits for its first token.
	calmPause    = 250 * time.Millisecond
	longestPause = 5 * time.Second
	restFactor   = 10
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// strangerBackOff is for a replica whose engine is not told and that shows
	// no metrics we know: most likely it never will.
	strangerBackOff = 5 * time.Minute
	// timeout bounds one scrape.
	timeout = 2 * time.Second
	// jitter is the share by which pauses vary, so that engines are not all
	// asked at once.
	jitter = 0.1
	// grid is what the times of scrapes are rounded to: to do a few at once
	// costs half of what waking up for each of them does.
	grid = 20 * time.Millisecond
)

// errStranger tells that a page shows nothing that is known.
var errStranger = errors.New("shows no metrics of a known engine")

// fetcher gets a page of metrics. The page is valid until the next call.
type fetcher interface {
	fetch(path string, timeout time.Duration) (page []byte, err error)
	close()
}

// scraper follows the metrics of one replica, by one scrape at a time.
type scraper struct {
	pool    *decider.Pool
	replica string
	address string
	paths   []string // to try in turn until one shows something
	told    bool     // the engine's kind, or its path, is configured
	fetch   fetcher
	report  *report

	path     int // of paths
	failures int // in a row
	strange  int // pages in a row that showed nothing
	took     time.Duration
	last     Reading // the last one, for what the counters have grown by
	seen     bool    // there is a last one
	finished finishRate

	listed func(names []string) // told of the adapters among the models
	asked  time.Time            // when the models were last asked for

	stop context.CancelFunc
	mu   sync.Mutex // guards what follows
	view Status
}

// Status is what is known of the signals of one replica, for operators.
type Status struct {
	Pool     string  `json:"pool"`
	Replica  string  `json:"replica"`
	Address  string  `json:"address"`
	Path     string  `json:"path"`
	Engine   string  `json:"engine"` // as the metrics tell; "" = not known
	Error    string  `json:"error,omitempty"`
	Age      float64 `json:"age_s"`    // since the last answer; -1 = none yet
	Pause    float64 `json:"pause_s"`  // until the next scrape
	Took     float64 `json:"took_s"`   // the last scrape
	Answers  uint64  `json:"answers"`  // scrapes that told something
	Failures uint64  `json:"failures"` // scrapes that did not
	Restarts uint64  `json:"restarts"` // times that the counters began anew
	Waiting  int     `json:"waiting"`  // requests
	Running  int     `json:"running"`  // requests
	KVUsage  float64 `json:"kv_usage"` // 0 to 1
	Cache    int     `json:"cache"`    // tokens; 0 = not told
	Firsts   bool    `json:"firsts"`   // first tokens are counted
	Prompts  bool    `json:"prompts"`  // prompt tokens are counted
	HitRate  float64 `json:"hit_rate"` // of the prefix cache since the engine's start; -1 = not told
	Adapters string  `json:"adapters"` // LoRA adapters in use
	// Blocks is what the events of the KV cache tell; nil where none are followed.
	Blocks *BlockStatus `json:"blocks,omitempty"`

	MaxLoRA  int `json:"max_lora"` // how many fit; 0 = not told
	answered time.Time
}

func newScraper(pool *decider.Pool, replica, address string, o PoolOptions, f fetcher, r *report) *scraper {
	paths := o.paths()
	return &scraper{
		pool: pool, replica: replica, address: address, paths: paths, told: o.told(), fetch: f, report: r,
		view: Status{Pool: pool.Name(), Replica: replica, Address: address, Path: paths[0], Age: -1, HitRate: -1},
	}
}

// run scrapes until ctx ends.
func (s *scraper) run(ctx context.Context) {
	defer s.fetch.close()
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(shortestPause))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		pause := s.once()
		s.models()
		now := time.Now()
		due := now.Add(time.Duration(float64(pause) * (1 - jitter + 2*jitter*rand.Float64())))
		timer.Reset(due.Round(grid).Sub(now))
	}
}

// modelsEvery is how often an engine is asked for its models.
const modelsEvery = 30 * time.Second

// models asks a vLLM or an SGLang that answers for its models: those with a
// parent are adapters. One that wants a key for that is left alone.
func (s *scraper) models() {
	if s.failures > 0 || s.last.Kind != VLLM && s.last.Kind != SGLang || time.Since(s.asked) < modelsEvery && !s.asked.IsZero() {
		return
	}
	s.asked = time.Now()
	body, err := s.fetch.fetch("/v1/models", timeout)
	if err != nil {
		return
	}
	var answer struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if sonic.Unmarshal(body, &answer) != nil {
		return
	}
	names := []string{}
	for _, m := range answer.Data {
		if m.Parent != nil && m.ID != "" && len(m.ID) <= maxAdapterName {
			names = append(names, strings.Clone(m.ID))
		}
	}
	s.listed(names)
}

// maxAdapterName bounds the names of adapters, in bytes.
const maxAdapterName = 256

// once scrapes and tells the pool; it returns how long to rest.
func (s *scraper) once() (pause time.Duration) {
	start := time.Now()
	page, err := s.fetch.fetch(s.paths[s.path], timeout)
	took := time.Since(start)
	var r Reading
	if err == nil {
		if r.Read(page); r.Kind == Unknown {
			err = errStranger
		}
	}
	if err != nil {
		return s.failed(err, took)
	}
	s.report.answered(s, &r, took)
	s.failures, s.strange = 0, 0
	restarted := s.tell(&r, start)
	// A slow answer counts at once, a quick one after slow ones by and by.
	s.took = max(took, (3*s.took+took)/4)
	pause = calmPause
	if r.Waiting > 0 || s.pool.Awaiting(s.replica) > 0 {
		pause = shortestPause
	}
	pause = min(longestPause, max(pause, restFactor*s.took))
	s.note(&r, took, pause, restarted)
	return pause
}

// tell tells the pool what is new.
func (s *scraper) tell(r *Reading, now time.Time) (restarted bool) {
	last := &s.last
	fell := func(before, after int64) bool { return before >= 0 && after >= 0 && after < before }
	restarted = s.seen && (fell(last.FirstTokens, r.FirstTokens) || fell(last.PromptTokens, r.PromptTokens) || fell(last.Finished, r.Finished))
	if restarted {
		s.pool.Restarted(s.replica)
	}
	if r.Loaded {
		s.pool.Signal(s.replica, decider.Signals{
			Waiting: r.Waiting, Running: r.Running, KVUsage: r.KVUsage, CacheTokens: r.CacheTokens,
			Throughput: s.finished.rate(r.Finished, now),
		})
	}
	// The first answer only says where the counters stand.
	if s.seen && !restarted {
		if r.FirstTokens >= 0 && last.FirstTokens >= 0 {
			s.pool.FirstTokens(s.replica, int(r.FirstTokens-last.FirstTokens))
		}
		if r.PromptTokens >= 0 && last.PromptTokens >= 0 {
			s.pool.Prompts(s.replica, grown(last.PromptTokens, r.PromptTokens), grown(last.QueryTokens, r.QueryTokens), grown(last.HitTokens, r.HitTokens))
		}
	}
	if restarted || !s.seen {
		s.finished = finishRate{}
	}
	if !s.seen && r.MaxLoRA > 0 || string(r.Adapters) != string(last.Adapters) || r.MaxLoRA != last.MaxLoRA {
		s.pool.Loaded(s.replica, adapterNames(string(r.Adapters)), r.MaxLoRA)
	}
	adapters := last.Adapters[:0]
	s.last, s.seen = *r, true
	s.last.Adapters = append(adapters, r.Adapters...) // the page does not last
	return restarted
}

// adapterNames takes the names in a metric apart.
func adapterNames(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && len(name) <= maxAdapterName {
			names = append(names, name)
		}
	}
	return names
}

func grown(before, after int64) int {
	if before < 0 || after < before {
		return 0
	}
	return int(after - before)
}

// failed notes a scrape that told nothing.
func (s *scraper) failed(err error, took time.Duration) (pause time.Duration) {
	s.report.failed(s, err)
	s.failures++
	pause = lastBackOff
	if s.failures < 6 {
		pause = firstBackOff << (s.failures - 1)
	}
	if errors.Is(err, errStranger) && !s.told {
		// Perhaps another path shows more; there is no hurry once all were tried.
		s.strange++
		s.path = (s.path + 1) % len(s.paths)
		if s.strange >= len(s.paths) && !s.seen {
			pause = strangerBackOff
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.Error, s.view.Took, s.view.Pause = err.Error(), took.Seconds(), pause.Seconds()
	s.view.Failures++
	return pause
}

// note keeps what Status tells.
func (s *scraper) note(r *Reading, took, pause time.Duration, restarted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.view
	v.Error, v.Path, v.Engine = "", s.paths[s.path], r.Kind.String()
	v.Took, v.Pause, v.answered = took.Seconds(), pause.Seconds(), time.Now()
	v.Answers++
	if restarted {
		v.Restarts++
	}
	v.Waiting, v.Running, v.KVUsage, v.Cache = r.Waiting, r.Running, r.KVUsage, r.CacheTokens
	v.Firsts, v.Prompts, v.MaxLoRA = r.FirstTokens >= 0, r.PromptTokens >= 0, r.MaxLoRA
	v.HitRate = -1
	if r.QueryTokens > 0 && r.HitTokens >= 0 {
		v.HitRate = float64(r.HitTokens) / float64(r.QueryTokens)
	}
	if v.Adapters != string(r.Adapters) {
		v.Adapters = string(r.Adapters)
	}
}

// status returns what is known.
func (s *scraper) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if !v.answered.IsZero() {
		v.Age = time.Since(v.answered).Seconds()
	}
	return v
}

// finishRate is how many requests an engine finishes in a second.
type finishRate struct {
	at    time.Time
	count int64
	last  float64
}

// rate returns the rate of the last whole second or more.
func (f *finishRate) rate(count int64, now time.Time) float64 {
	switch elapsed := now.Sub(f.at); {
	case count < 0:
		return 0
	case f.at.IsZero():
		f.at, f.count = now, count
	case elapsed >= time.Second:
		f.last = float64(max(0, count-f.count)) / elapsed.Seconds()
		f.at, f.count = now, count
	}
	return f.last
}

// statusError is an answer other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("answers with status %d", int(e)) }
