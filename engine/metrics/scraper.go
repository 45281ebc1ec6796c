package metrics

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/decider"
)

// The pauses between two scrapes of one engine. A scrape takes time of the process
// that serves requests, so a pause is at least restFactor times as long as the
// scrape took. After failures the pause doubles from firstBackOff to lastBackOff.
const (
	minPause = 100 * time.Millisecond
	// calmPause is for an engine where no request waits for its first token,
	// idlePause for one without requests since the last scrape. Both end early when
	// one of our requests begins to wait.
	calmPause    = 250 * time.Millisecond
	idlePause    = time.Second
	maxPause     = 5 * time.Second
	restFactor   = 10
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// unknownBackOff is for a replica that is not configured as an engine and serves
	// no metrics that we know. Most likely it never will.
	unknownBackOff = 5 * time.Minute
	// timeout bounds one scrape.
	timeout = 2 * time.Second
	// pauseJitter is the share by which pauses vary at random, so that engines are
	// not scraped in step.
	pauseJitter = 0.1
)

// The failures of a scrape besides those of the connection.
var (
	errUnknown = errors.New("no metrics of a known engine")
	errTimeout = fmt.Errorf("no answer within %v", timeout)
)

// fetcher requests pages from one engine, one at a time. It never blocks.
type fetcher interface {
	// send requests a page.
	send(path string) error
	// poll returns the page, valid until the next call of send, or errPending.
	poll() (page []byte, err error)
	// lost reports whether the engine closed the connection instead of answering. The
	// request was sent again over another one.
	lost() bool
	// close gives up the request and the connection. The fetcher can be used again.
	close()
}

// Scraper scrapes one replica, one request at a time. Only the goroutine of
// Poller.Run uses it, except for Status and the fields that say otherwise. Times are
// since the start of Run.
type Scraper struct {
	pool       *decider.Pool
	replica    string
	address    string
	rank       int // the only one of the engine that counts, or allRanks
	rest       time.Duration
	paths      []string // tried in turn until one serves known metrics
	configured bool     // the engine's kind or path is configured
	fetcher    fetcher
	report     *report
	events     Events

	pending    request       // the request without an answer yet
	sentAt     time.Duration // when it was sent
	lastPoll   time.Duration // when there was last no answer yet
	dueWaiting time.Duration // when to scrape next if a request waits for its first token
	due        time.Duration // when to scrape next if none does
	dueModels  time.Duration // when to request the models next
	dueHealth  time.Duration // when to ask next whether the engine can serve
	dead       bool          // it declared itself unable to serve, and has not recovered

	path       int // index in paths
	failures   int // scrapes in a row
	unknown    int // pages in a row without known metrics
	smoothed   time.Duration
	modelsOld  bool    // the engine has restarted since it listed its models
	last       Reading // the last one: counters are compared with it
	seen       bool    // last is set
	finishRate rate

	removed atomic.Bool // set by Remove
	mu      sync.Mutex  // guards status
	status  Status
}

// request is a kind of request to an engine.
type request uint8

const (
	noRequest request = iota
	metricsRequest
	modelsRequest
	healthRequest
)

func newScraper(pool *decider.Pool, replica, address string, o Options, f fetcher, r *report) *Scraper {
	paths := o.paths()
	rank := allRanks
	if o.Rank.Of > 1 {
		rank = o.Rank.Number
	}
	return &Scraper{
		// The ranks of an engine are scraped separately, and share the load.
		rank: rank, rest: restFactor * time.Duration(max(o.Rank.Of, 1)),
		pool: pool, replica: replica, address: address, paths: paths, configured: o.configured(), fetcher: f, report: r,
		due:    time.Duration(rand.Int64N(int64(minPause))).Round(tick),
		status: Status{Pool: pool.Name(), Replica: replica, Address: address, Path: paths[0], Age: -1, HitRate: -1},
	}
}

// sendDue sends the request that is due, unless one is pending. It reports whether
// it has sent one.
func (s *Scraper) sendDue(now time.Duration) (sent bool) {
	if s.pending != noRequest {
		return false
	}
	var err error
	switch {
	case now >= s.due || now >= s.dueWaiting && s.pool.Engine(s.replica).AwaitingFirstToken() > 0:
		s.pending = metricsRequest
		err = s.fetcher.send(s.paths[s.path])
	case now >= s.dueHealth && s.asksHealth():
		s.pending = healthRequest
		err = s.fetcher.send("/health")
	case now >= s.dueModels && s.failures == 0 && (s.last.Kind == VLLM || s.last.Kind == SGLang):
		s.pending, s.dueModels = modelsRequest, now+modelsEvery
		err = s.fetcher.send("/v1/models")
	default:
		return false
	}
	s.sentAt, s.lastPoll = now, now
	if err != nil {
		s.handle(nil, err, now)
	}
	return s.pending != noRequest
}

// poll handles the answer if it has arrived. It reports whether the request is still
// pending. meant is when the poll was scheduled, now the present time.
func (s *Scraper) poll(meant, now time.Duration) (pending bool) {
	if s.pending == noRequest {
		return false
	}
	page, err := s.fetcher.poll()
	if errors.Is(err, errPending) {
		abandoned := s.abandoned(now)
		if now-s.sentAt < timeout && !abandoned {
			s.lastPoll = now
			return true
		}
		s.fetcher.close()
		err = errTimeout
		if abandoned {
			s.declareDead()
		}
	}
	s.handle(page, err, meant)
	return false
}

// next returns when to call sendDue and poll again.
func (s *Scraper) next(now time.Duration) time.Duration {
	if s.pending != noRequest {
		return now + tick
	}
	if s.asksHealth() {
		return min(s.due, s.dueHealth)
	}
	return s.due
}

// handle handles an answer or an error. at is when the poll was scheduled: when it
// ran late, the engine does not count as slower for it.
func (s *Scraper) handle(page []byte, err error, at time.Duration) {
	answered := s.pending
	s.pending = noRequest
	switch answered {
	case modelsRequest:
		s.handleModels(page, err)
		return
	case healthRequest:
		s.readHealth(err, max(s.lastPoll, at))
		return
	}
	// It arrived between the last poll and this one.
	came := (s.lastPoll + max(s.lastPoll, at)) / 2
	took := came - s.sentAt
	var r Reading
	if err == nil {
		if r.ReadRank(page, s.rank); r.Kind == Unknown {
			err = errUnknown
		}
	}
	var early, late time.Duration
	if err == nil {
		early, late = s.succeed(&r, took, came)
	} else {
		late = s.fail(err, took)
		early = late
	}
	vary := 1 - pauseJitter + 2*pauseJitter*rand.Float64()
	s.dueWaiting, s.due = roundToTick(came, early, vary), roundToTick(came, late, vary)
}

// roundToTick returns at plus vary times pause, rounded to a tick.
func roundToTick(at, pause time.Duration, vary float64) time.Duration {
	to := tick
	if pause >= idlePause {
		to = ticksPerPause * tick // there is a round in each minPause anyway
	}
	return (at + time.Duration(vary*float64(pause))).Round(to)
}

// succeed handles a reading. It returns the pause if a request waits for its first
// token, and the pause if none does.
func (s *Scraper) succeed(r *Reading, took, now time.Duration) (early, late time.Duration) {
	s.report.succeeded(s, r, took)
	back := s.failures > 0
	s.failures, s.unknown = 0, 0
	idle := s.seen && r.Running == 0 && r.FirstTokens == s.last.FirstTokens && r.Finished == s.last.Finished
	restarted := s.reportToPool(r, now)
	if restarted || back {
		s.maybeReplaced(now, restarted)
	}
	// A slow scrape counts at once; quick ones after it lower the figure gradually.
	s.smoothed = max(took, (3*s.smoothed+took)/4)
	switch {
	case r.Waiting > 0 || s.pool.Engine(s.replica).AwaitingFirstToken() > 0:
		late = minPause
	case idle:
		late = idlePause
	default:
		late = calmPause
	}
	least := s.rest * s.smoothed
	early, late = min(maxPause, max(minPause, least)), min(maxPause, max(late, least))
	s.updateStatus(r, took, late, restarted)
	return early, late
}

// fail handles a scrape that failed. It returns the pause.
func (s *Scraper) fail(err error, took time.Duration) (pause time.Duration) {
	s.report.failed(s, err)
	s.failures++
	pause = lastBackOff
	if s.failures < 6 {
		pause = firstBackOff << (s.failures - 1)
	}
	if errors.Is(err, errUnknown) && !s.configured {
		// Try another path next; once all were tried there is no hurry.
		s.unknown++
		s.path = (s.path + 1) % len(s.paths)
		if s.unknown >= len(s.paths) && !s.seen {
			pause = unknownBackOff
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Error, s.status.Took, s.status.Pause = err.Error(), took.Seconds(), pause.Seconds()
	s.status.Failures++
	return pause
}

// statusError is an answer with a status other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }
