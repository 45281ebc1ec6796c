package metrics

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

// How often an engine is asked. Answering costs it time of the very process
// that serves requests: so it is given restFactor times as long to rest as its
// answer took. One that fails is left alone for longer and longer.
const (
	shortestPause = 100 * time.Millisecond
	// calmPause is for an engine where no request waits for its first token, and
	// idlePause for one that has had none since it was last asked. Where one of
	// ours comes to wait they are cut short.
	calmPause    = 250 * time.Millisecond
	idlePause    = time.Second
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
)

// errStranger tells that a page shows nothing that is known.
var errStranger = errors.New("shows no metrics of a known engine")

var errTimeout = fmt.Errorf("has not answered within %v", timeout)

// fetcher gets pages from one engine, one at a time and without ever waiting.
type fetcher interface {
	// ask sends for a page.
	ask(path string) error
	// answer returns the page, valid until the next call of ask, or errPending.
	answer() (page []byte, err error)
	// close gives up what was asked for, and the connection. A fetcher can be
	// used again after it.
	close()
}

// Scraper follows the metrics of one replica, by one scrape at a time. Times
// are since some start.
type Scraper struct {
	pool    *decider.Pool
	replica string
	address string
	paths   []string // to try in turn until one shows something
	told    bool     // the engine's kind, or its path, is configured
	fetch   fetcher
	report  *report
	listed  func(names []string) // told of the adapters among the models

	asking  question      // what has not been answered yet
	asked   time.Duration // when that was sent
	without time.Duration // when an answer was last looked for in vain
	early   time.Duration // when to ask next for metrics, if a request waits
	due     time.Duration // and if none does
	models  time.Duration // when to ask next for the models

	path     int // of paths
	failures int // in a row
	strange  int // pages in a row that showed nothing
	took     time.Duration
	last     Reading // the last one, for what the counters have grown by
	seen     bool    // there is a last one
	finished finishRate

	gone atomic.Bool // the replica is followed no more
	mu   sync.Mutex  // guards what follows
	view Status
}

// question is what an engine is asked for.
type question uint8

const (
	nothing question = iota
	forMetrics
	forModels
)

func newScraper(pool *decider.Pool, replica, address string, o Options, f fetcher, r *report) *Scraper {
	paths := o.paths()
	return &Scraper{
		pool: pool, replica: replica, address: address, paths: paths, told: o.told(), fetch: f, report: r,
		due:  time.Duration(rand.Int64N(int64(shortestPause))).Round(grid),
		view: Status{Pool: pool.Name(), Replica: replica, Address: address, Path: paths[0], Age: -1, HitRate: -1},
	}
}

// ask sends for what is due, unless there is something under way. It reports
// whether it has sent.
func (s *Scraper) ask(now time.Duration) (sent bool) {
	if s.asking != nothing {
		return false
	}
	var err error
	switch {
	case now >= s.due || now >= s.early && s.pool.Engine(s.replica).AwaitingFirstToken() > 0:
		s.asking = forMetrics
		err = s.fetch.ask(s.paths[s.path])
	case now >= s.models && s.failures == 0 && (s.last.Kind == VLLM || s.last.Kind == SGLang):
		s.asking, s.models = forModels, now+modelsEvery
		err = s.fetch.ask("/v1/models")
	default:
		return false
	}
	s.asked, s.without = now, now
	if err != nil {
		s.answered(nil, err, now)
	}
	return s.asking != nothing
}

// look takes the answer in, if it has come. It reports whether it has not. now
// may be later than it was meant to look.
func (s *Scraper) look(meant, now time.Duration) (pending bool) {
	if s.asking == nothing {
		return false
	}
	page, err := s.fetch.answer()
	if err == errPending {
		if now-s.asked < timeout {
			s.without = now
			return true
		}
		s.fetch.close()
		err = errTimeout
	}
	s.answered(page, err, meant)
	return false
}

// next is when there is something to do again.
func (s *Scraper) next(now time.Duration) time.Duration {
	if s.asking != nothing {
		return now + grid
	}
	return s.due
}

// answered takes in what an engine has said, or err. at is when that was to be
// looked for: that we are late is no reason to ask the engine less often.
func (s *Scraper) answered(page []byte, err error, at time.Duration) {
	asking := s.asking
	s.asking = nothing
	if asking == forModels {
		if err == nil {
			s.list(page)
		}
		return
	}
	// It came at some time since it was last looked for.
	came := (s.without + max(s.without, at)) / 2
	took := came - s.asked
	var r Reading
	if err == nil {
		if r.Read(page); r.Kind == Unknown {
			err = errStranger
		}
	}
	var early, late time.Duration
	if err == nil {
		early, late = s.scraped(&r, took, came)
	} else {
		late = s.failed(err, took)
		early = late
	}
	vary := 1 - jitter + 2*jitter*rand.Float64()
	s.early, s.due = after(came, early, vary), after(came, late, vary)
}

// after is the time of the round that is vary pauses after at.
func after(at, pause time.Duration, vary float64) time.Duration {
	to := grid
	if pause >= idlePause {
		to = coarse * grid // there is a round in each shortest pause anyway
	}
	return (at + time.Duration(vary*float64(pause))).Round(to)
}

// scraped takes a reading in. It returns how long to rest if a request waits for
// its first token, and if none does.
func (s *Scraper) scraped(r *Reading, took, now time.Duration) (early, late time.Duration) {
	s.report.answered(s, r, took)
	s.failures, s.strange = 0, 0
	idle := s.seen && r.Running == 0 && r.FirstTokens == s.last.FirstTokens && r.Finished == s.last.Finished
	restarted := s.tell(r, now)
	// A slow answer counts at once, a quick one after slow ones by and by.
	s.took = max(took, (3*s.took+took)/4)
	switch {
	case r.Waiting > 0 || s.pool.Engine(s.replica).AwaitingFirstToken() > 0:
		late = shortestPause
	case idle:
		late = idlePause
	default:
		late = calmPause
	}
	least := restFactor * s.took
	early, late = min(longestPause, max(shortestPause, least)), min(longestPause, max(late, least))
	s.note(r, took, late, restarted)
	return early, late
}

// modelsEvery is how often an engine is asked for its models. Those with a
// parent are adapters. One that wants a key for that is left alone.
const modelsEvery = 30 * time.Second

// list reads a list of models.
func (s *Scraper) list(page []byte) {
	var answer struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if sonic.Unmarshal(page, &answer) != nil {
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

// tell tells the pool what is new.
func (s *Scraper) tell(r *Reading, now time.Duration) (restarted bool) {
	last := &s.last
	fell := func(before, after int64) bool { return before >= 0 && after >= 0 && after < before }
	restarted = s.seen && (fell(last.FirstTokens, r.FirstTokens) || fell(last.PromptTokens, r.PromptTokens) || fell(last.Finished, r.Finished))
	if restarted {
		s.pool.Engine(s.replica).Restarted()
	}
	if r.Loaded {
		s.pool.Engine(s.replica).Signals(decider.Signals{
			Waiting: r.Waiting, Running: r.Running, KVUsage: r.KVUsage, CacheTokens: r.CacheTokens,
			Throughput: s.finished.rate(r.Finished, now),
		})
	}
	// The first answer only says where the counters stand.
	if s.seen && !restarted {
		if r.FirstTokens >= 0 && last.FirstTokens >= 0 {
			s.pool.Engine(s.replica).FirstTokens(int(r.FirstTokens - last.FirstTokens))
		}
		if r.PromptTokens >= 0 && last.PromptTokens >= 0 {
			s.pool.Engine(s.replica).Prompts(grown(last.PromptTokens, r.PromptTokens), grown(last.QueryTokens, r.QueryTokens), grown(last.HitTokens, r.HitTokens))
		}
	}
	if restarted || !s.seen {
		s.finished = finishRate{}
	}
	if !s.seen && r.MaxLoRA > 0 || string(r.Adapters) != string(last.Adapters) || r.MaxLoRA != last.MaxLoRA {
		s.pool.Engine(s.replica).AdaptersLoaded(adapterNames(string(r.Adapters)), r.MaxLoRA)
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
func (s *Scraper) failed(err error, took time.Duration) (pause time.Duration) {
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

// finishRate is how many requests an engine finishes in a second.
type finishRate struct {
	at    time.Duration
	count int64
	last  float64
	begun bool
}

// rate returns the rate of the last whole second or more.
func (f *finishRate) rate(count int64, now time.Duration) float64 {
	switch elapsed := now - f.at; {
	case count < 0:
		return 0
	case !f.begun:
		f.at, f.count, f.begun = now, count, true
	case elapsed >= time.Second:
		f.last = float64(max(0, count-f.count)) / elapsed.Seconds()
		f.at, f.count = now, count
	}
	return f.last
}

// statusError is an answer other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("answers with status %d", int(e)) }
