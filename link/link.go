// Package link counts what passes between the agent and one proxy: its questions, and its
// reports on requests. From these it infers what the agent does not receive.
package link

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Link is the state of the connection to one proxy. It is safe for concurrent use. Its
// funcs are set before the first call of Status.
type Link struct {
	Proxy string // "haproxy" or "nginx"
	// Connections is how many connections for questions are open.
	Connections func() int
	// FeedConnections is how many connections of the feed are open; nil where the
	// feed has none.
	FeedConnections func() int

	asked      atomic.Uint64
	ended      atomic.Uint64
	mismatches atomic.Uint64
	unanswered atomic.Uint64
	lineAt     atomic.Int64 // when the feed's last line came, as by stamp; 0 = never
	waiting    atomic.Int64 // questions since that line
	since      atomic.Int64 // when the first of these came
	version    atomic.Pointer[string]
	faults     [faults]atomic.Uint64
	unasked    atomic.Uint64
	undecided  atomic.Int64 // questions that were answered without a replica, and not reported since

	mu       sync.Mutex
	bypassed map[string]uint64 // by frontend
	rates    [rateSeconds + 1]sample
	sampled  int
}

// maxFrontends bounds the frontends that are counted separately: anyone who reaches the feed
// can make up names.
const maxFrontends = 64

// others is the frontend of requests beyond maxFrontends, and unknown that of lines that
// name none.
const others, unknown = "(others)", "(unknown)"

// rateSeconds is the window of the rate of questions, in seconds.
const rateSeconds = 10

type sample struct {
	at    time.Time
	asked uint64
}

// began is the origin of stamps.
var began = time.Now()

// stamp is a moment as a number, which is never 0. It does not depend on the calendar,
// which may be set.
func stamp(t time.Time) int64 {
	if d := int64(t.Sub(began)); d != 0 {
		return d
	}
	return 1
}

// since is the time from a stamp to now, in seconds.
func since(now time.Time, at int64) float64 { return now.Sub(began.Add(time.Duration(at))).Seconds() }

// Asked counts a question of the proxy.
func (l *Link) Asked(now time.Time) {
	l.asked.Add(1)
	if l.waiting.Add(1) == 1 {
		l.since.Store(stamp(now))
	}
}

// LineRead notes a line of the feed.
func (l *Link) LineRead(now time.Time) { l.lineAt.Store(stamp(now)); l.waiting.Store(0) }

// Ended counts the end of a request that the proxy asked about, or tried to. answered
// reports whether an answer came in time, and mismatch whether another replica than the
// chosen one served.
func (l *Link) Ended(answered, mismatch bool) {
	l.ended.Add(1)
	if !answered {
		l.unanswered.Add(1)
	}
	if mismatch {
		l.mismatches.Add(1)
	}
}

// Bypassed counts a request that reached a pool although the proxy did not ask.
// first reports whether it is the first one of its frontend.
func (l *Link) Bypassed(frontend []byte) (name string, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.bypassed[string(frontend)]
	name = string(frontend)
	if !known {
		switch {
		case len(frontend) == 0:
			name = unknown
		case !plain(frontend) || len(l.bypassed) >= maxFrontends:
			name = others
		}
		n, known = l.bypassed[name]
	}
	if l.bypassed == nil {
		l.bypassed = map[string]uint64{}
	}
	l.bypassed[name] = n + 1
	return name, !known
}

// plain reports whether a name is one that HAProxy allows.
func plain(name []byte) bool {
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return len(name) <= 64
}

// SetVersion notes the version that the proxy reports.
func (l *Link) SetVersion(v string) { l.version.Store(&v) }

// Status is the state of a Link.
type Status struct {
	Proxy     string  `json:"proxy"`
	Version   string  `json:"version,omitempty"` // where it is known
	Connected bool    `json:"connected"`         // it has a connection for questions
	Questions uint64  `json:"questions"`
	Rate      float64 `json:"questions_per_s"` // of the last ten seconds
	// FeedConnected reports whether the feed has a connection; nil where it needs none.
	FeedConnected *bool `json:"feed_connected,omitempty"`
	// FeedAge is the time since the feed's last line, in seconds; -1 = none came.
	FeedAge float64 `json:"feed_age_s"`
	// SinceLine are questions since the last line.
	SinceLine int64 `json:"questions_since_feed"`
	// Unreported are questions whose end was not reported: in flight or lost.
	Unreported uint64 `json:"unreported"`
	// Unanswered are requests that went on because no answer came in time.
	Unanswered uint64            `json:"unanswered"`
	Mismatches uint64            `json:"mismatches"` // served by another replica than the chosen one
	Bypassed   map[string]uint64 `json:"bypassed"`   // requests that the proxy did not ask about, by frontend
	// Faults are mistakes in the proxy's configuration.
	Faults []Found `json:"faults,omitempty"`
	// Problem is the problem in one sentence; "" = none.
	Problem string `json:"problem,omitempty"`
}

// Status returns the state at now.
func (l *Link) Status(now time.Time) Status {
	asked, ended := l.asked.Load(), l.ended.Load()
	s := Status{
		Proxy: l.Proxy, Connected: l.Connections != nil && l.Connections() > 0, Questions: asked, FeedAge: -1,
		SinceLine: max(l.waiting.Load(), 0), Unanswered: l.unanswered.Load(), Mismatches: l.mismatches.Load(), Bypassed: map[string]uint64{},
		Faults: l.found(),
	}
	if asked > ended { // requests whose agent was away end without a question
		s.Unreported = asked - ended
	}
	if v := l.version.Load(); v != nil {
		s.Version = *v
	}
	if at := l.lineAt.Load(); at != 0 {
		s.FeedAge = max(0, since(now, at))
	}
	if l.FeedConnections != nil {
		s.FeedConnected = new(l.FeedConnections() > 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.bypassed {
		s.Bypassed[name] = n
	}
	if l.sampled > 0 {
		oldest := l.rates[max(l.sampled-rateSeconds, 0)%len(l.rates)]
		newest := l.rates[(l.sampled-1)%len(l.rates)]
		if span := newest.at.Sub(oldest.at).Seconds(); span > 0 {
			s.Rate = float64(newest.asked-oldest.asked) / span
		}
	}
	s.Problem = s.problem(since(now, l.since.Load()))
	return s
}

// Tick takes a sample for the rate. The owner calls it about every second.
func (l *Link) Tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rates[l.sampled%len(l.rates)] = sample{now, l.asked.Load()}
	l.sampled++
}

// A feed counts as silent after this many questions without a line, the first of them this
// many seconds ago. Where a feed reports ends only, a few long answers are just as quiet:
// fewer questions prove nothing before longSilence. A feed without a connection gets
// reconnects.
const (
	reconnects      = 3.0
	silentQuestions = 20
	silentAfter     = 10.0
	longSilence     = 300.0
)

// problem describes what is wrong, or is "". quiet is how long ago the first question since
// the last line came, in seconds.
func (s *Status) problem(quiet float64) string {
	questions := fmt.Sprintf("%d questions since its last line", s.SinceLine)
	switch {
	case s.SinceLine == 0:
		return ""
	case s.FeedConnected != nil && !*s.FeedConnected && quiet >= reconnects:
		return "the feed is not connected, " + questions
	case quiet < longSilence && (quiet < silentAfter || s.SinceLine < silentQuestions):
		return ""
	case s.FeedAge < 0:
		return fmt.Sprintf("the feed has sent nothing yet, %d questions came", s.SinceLine)
	default:
		return "the feed is silent, " + questions
	}
}

// WriteMetrics writes the state as metrics.
func (s *Status) WriteMetrics(w io.Writer) {
	proxy := fmt.Sprintf("{proxy=%q}", s.Proxy)
	flag := func(name string, v bool) {
		n := uint64(0)
		if v {
			n = 1
		}
		metrics.WriteGaugeUint64(w, name+proxy, n)
	}
	flag("pointsman_proxy_connected", s.Connected)
	flag("pointsman_proxy_feed_ok", s.Problem == "")
	metrics.WriteCounterUint64(w, "pointsman_questions_total"+proxy, s.Questions)
	metrics.WriteGaugeFloat64(w, "pointsman_feed_age_seconds"+proxy, s.FeedAge)
	metrics.WriteGaugeUint64(w, "pointsman_questions_since_feed"+proxy, uint64(s.SinceLine))
	metrics.WriteGaugeUint64(w, "pointsman_unreported"+proxy, s.Unreported)
	metrics.WriteCounterUint64(w, "pointsman_unanswered_total"+proxy, s.Unanswered)
	metrics.WriteCounterUint64(w, "pointsman_mismatches_total"+proxy, s.Mismatches)
	for f := range faults {
		n := uint64(0)
		for _, found := range s.Faults {
			if found.Fault == f.String() {
				n = found.Count
			}
		}
		metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_proxy_faults_total{proxy=%q,fault=%q}", s.Proxy, f), n)
	}
	if len(s.Bypassed) == 0 { // a counter is there before it counts
		s.Bypassed = map[string]uint64{unknown: 0}
	}
	for name, n := range s.Bypassed {
		metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_bypassed_total{proxy=%q,frontend=%q}", s.Proxy, name), n)
	}
}
