// Package tokenize asks the engines to tokenize prompts, for policies that compare exact
// blocks of tokens. An engine applies its own chat template, so the tokens are those of its
// KV cache.
package tokenize

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// Tokenizer gives requests their tokens. It caches the tokens of prompts, and asks an
// engine only once for the same prompt. It is safe for concurrent use; its lock is never
// held during a call.
type Tokenizer struct {
	clients [len(answers)]*fasthttp.Client
	turn    atomic.Uint32 // the replica to ask first
	cache   cache

	// Log reports, once per engine, what its tokenizer cannot do. It is set before the
	// first request.
	Log *slog.Logger

	mu    sync.Mutex
	calls map[uint64]*call // pending calls, by the hash of the whole prompt
	apis  map[string]*api  // what is known of the engines, by address

	now       func() time.Time // time.Now, except in tests
	forgotten atomic.Int64     // when an engine last restarted, in Unix nanoseconds

	exact, prefix, engine, ids *metrics.Counter
	empty, cut, late, failed   *metrics.Counter
}

// Bounds of the calls to engines.
const (
	maxCalls    = 256 // at a time
	callTimeout = 5 * time.Second
	// maxIdle is less than the 5 s after which most engines close an idle connection.
	maxIdle = 3 * time.Second
)

// answers are the longest answers that are read, in bytes, by the length of the question,
// and how many of them at a time from one engine. A token takes at least one byte of the
// prompt, and about eight of the answer.
var answers = [...]struct{ question, most, calls int }{
	{48 << 10, 1 << 20, 32},
	{480 << 10, 8 << 20, 4},
	{1 << 40, 64 << 20, 1},
}

// newClient returns a client for answers of at most so many bytes.
func newClient(most, calls int) *fasthttp.Client {
	return &fasthttp.Client{
		Dial: func(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, 2*time.Second) },
		// Calls are short: a call that had to wait for a connection would be too late
		// anyway.
		MaxConnsPerHost: calls, MaxIdleConnDuration: maxIdle, MaxResponseBodySize: most,
		// Engines close connections too, and a call changes nothing there.
		RetryIfErr:               func(*fasthttp.Request, int, error) (resetTimeout, retry bool) { return false, true },
		NoDefaultUserAgentHeader: true,
	}
}

// client returns the client for a question of n bytes.
func (t *Tokenizer) client(n int) *fasthttp.Client {
	for i, a := range answers {
		if n <= a.question {
			return t.clients[i]
		}
	}
	return t.clients[len(t.clients)-1]
}

// New returns a Tokenizer that counts in set.
func New(set *metrics.Set) *Tokenizer {
	tokenized := func(source string) *metrics.Counter {
		return set.NewCounter(`pointsman_tokenized_total{source="` + source + `"}`)
	}
	untokenized := func(reason string) *metrics.Counter {
		return set.NewCounter(`pointsman_untokenized_total{reason="` + reason + `"}`)
	}
	t := &Tokenizer{
		Log:   slog.New(slog.DiscardHandler),
		calls: map[uint64]*call{}, apis: map[string]*api{}, now: time.Now,
		exact: tokenized("exact"), prefix: tokenized("prefix"), engine: tokenized("engine"), ids: tokenized("ids"),
		empty: untokenized("no_prompt"), cut: untokenized("cut"), late: untokenized("late"), failed: untokenized("failed"),
	}
	for i, a := range answers {
		t.clients[i] = newClient(a.most, a.calls)
	}
	return t
}

// Prompt is the prompt of a request. It is not kept after Prepare returns.
type Prompt struct {
	Body []byte // of the request, as the client sent it
	// Turns are the hashes of the prompt up to the end of each message. The last is
	// the hash of the whole prompt, unless the body is cut. Without a prompt there
	// are none.
	Turns []uint64
	Seed  uint64 // of the keys of the prompt's blocks
	Form  Form   // of the API
	IDs   bool   // it has token ids
	// BeforeWait, unless nil, is called before Prepare waits for an engine.
	BeforeWait func()
}

// Prepare sets the tokens of r, whose pool's policy compares tokens. It waits for an
// engine no longer than the policy's timeout. A request without tokens goes on without
// them, or is rejected if the policy says so: then d holds the status, and Prepare
// returns false. Requests of the converted forms are never rejected.
func (t *Tokenizer) Prepare(r *decider.Request, p Prompt, d *decider.Decision) bool {
	o, turns := r.Pool.Tokens(), p.Turns
	reject := o.Reject() && !p.Form.isConverted()
	if len(turns) == 0 && !r.Cut {
		t.empty.Inc()
		return !reject || refuse(d, http.StatusBadRequest, "the body has no prompt", 0)
	}
	last := len(turns) - 1
	if p.IDs && !r.Cut && t.fromIDs(r, p, o.BlockTokens) {
		return true
	}
	if !r.Cut {
		if e, ok := t.cache.get(turns[last], o.BlockTokens); ok {
			t.exact.Inc()
			r.Tokenized(e.blocks, e.tokens)
			if t.isStale(e) {
				t.refresh(r, p, e, o.BlockTokens)
			}
			return true
		}
	}
	// The tokens of an earlier turn already show where most of the conversation is cached.
	// The whole prompt is tokenized in the background, for the next turn.
	known := false
	for k := last; k >= 0 && !known; k-- {
		var e entry
		if e, known = t.cache.get(turns[k], o.BlockTokens); known {
			t.prefix.Inc()
			r.TokenizedInPart(e.blocks, e.tokens, e.text)
		}
	}
	if r.Cut {
		if !known {
			t.cut.Inc()
		}
		return known || !reject || refuse(d, http.StatusServiceUnavailable, "the prompt is too long to be tokenized", 0)
	}
	c := t.start(r, p, o.BlockTokens)
	if known {
		return true
	}
	if c != nil && p.BeforeWait != nil {
		p.BeforeWait()
	}
	if c != nil && c.wait(o.Timeout) {
		if c.ok {
			t.engine.Inc()
			r.Tokenized(c.entry.blocks, c.entry.tokens)
			return true
		}
		t.failed.Inc()
	} else {
		t.late.Inc()
	}
	return !reject || refuse(d, http.StatusServiceUnavailable, "no tokenizer answers", 1)
}

// refuse answers the request with an error. It returns false.
func refuse(d *decider.Decision, status int, reason string, retry int) bool {
	*d = decider.Decision{Status: status, Reason: reason, Retry: retry, Why: "untokenized"}
	return false
}
