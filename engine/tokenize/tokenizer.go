// Package tokenize has the engines turn prompts into token ids, for the policy
// that compares exact blocks.
package tokenize

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/bytedance/sonic"
	"github.com/valyala/fasthttp"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// Tokenizer has the engines turn prompts into tokens, for pools whose policy
// looks at them: the engine applies its own chat template, and so its tokens
// are those of its KV cache. It is safe for concurrent use.
type Tokenizer struct {
	client *fasthttp.Client
	turn   atomic.Uint32
	cache  tokenCache

	mu    sync.Mutex
	calls map[uint64]*tokenCall // under way, by the hash of the whole prompt

	exact, prefix, engine    *metrics.Counter
	empty, cut, late, failed *metrics.Counter
}

// Bounds of what goes on at a time, and of one call.
const (
	maxTokenCalls = 256
	tokenTimeout  = 5 * time.Second
	maxTokenBody  = 64 << 20 // bytes, of an answer
)

// New returns a Tokenizer that counts in set.
func New(set *metrics.Set) *Tokenizer {
	tokenized := func(source string) *metrics.Counter {
		return set.NewCounter(`pointsman_tokenized_total{source="` + source + `"}`)
	}
	untokenized := func(reason string) *metrics.Counter {
		return set.NewCounter(`pointsman_untokenized_total{reason="` + reason + `"}`)
	}
	return &Tokenizer{
		client: &fasthttp.Client{
			Dial: func(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, 2*time.Second) },
			// Calls are short; those that wait for a connection are late anyway.
			MaxConnsPerHost: 32, MaxIdleConnDuration: time.Minute, MaxResponseBodySize: maxTokenBody,
			MaxIdemponentCallAttempts: 2, NoDefaultUserAgentHeader: true,
		},
		calls: map[uint64]*tokenCall{},
		exact: tokenized("exact"), prefix: tokenized("prefix"), engine: tokenized("engine"),
		empty: untokenized("no_prompt"), cut: untokenized("cut"), late: untokenized("late"), failed: untokenized("failed"),
	}
}

// Prompt is the prompt of a request. Nothing of it is kept.
type Prompt struct {
	Body []byte // of the request, as the client sent it
	// Turns are hashes of the prompt up to the end of each message. The last one
	// is that of the whole prompt, unless the body is cut. There are none
	// without a prompt.
	Turns []uint64
	Seed  uint64 // what the keys of the prompt's blocks begin with
}

// Prepare gives r, whose pool's policy compares tokens, the tokens of its prompt.
// It waits for an engine no longer than the policy's timeout, and then leaves r
// without tokens or, where the policy demands them, refuses the request: then d
// holds the status, and Prepare reports false.
func (t *Tokenizer) Prepare(r *decider.Request, p Prompt, d *decider.Decision) bool {
	o, turns := r.Pool.Tokens(), p.Turns
	if len(turns) == 0 && !r.Cut {
		t.empty.Inc()
		return !o.Reject() || refuse(d, http.StatusBadRequest, "the body has no prompt", 0)
	}
	last := len(turns) - 1
	if !r.Cut {
		if e, ok := t.cache.get(turns[last]); ok {
			t.exact.Inc()
			r.Tokenized(e.blocks, e.tokens)
			return true
		}
	}
	// An earlier turn of the conversation tells where most of it is cached. The
	// whole is tokenized meanwhile, for the next turn.
	known := false
	for k := last; k >= 0 && !known; k-- {
		var e tokenEntry
		if e, known = t.cache.get(turns[k]); known {
			t.prefix.Inc()
			r.Tokenized(e.blocks, 0)
		}
	}
	if r.Cut {
		if !known {
			t.cut.Inc()
		}
		return known || !o.Reject() || refuse(d, http.StatusServiceUnavailable, "the prompt is too long to be tokenized", 0)
	}
	c := t.begin(r.Pool, p, o.BlockTokens)
	if known {
		return true
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
	return !o.Reject() || refuse(d, http.StatusServiceUnavailable, "no tokenizer answers", 1)
}

func refuse(d *decider.Decision, status int, reason string, retry int) bool {
	*d = decider.Decision{Status: status, Reason: reason, Retry: retry, Why: "untokenized"}
	return false
}

// tokenCall is one question to an engine.
type tokenCall struct {
	done  chan struct{}
	entry tokenEntry // valid once done is closed
	ok    bool
}

// wait reports whether the call was done in time.
func (c *tokenCall) wait(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

// begin asks an engine for the tokens of a prompt, unless that is under way. It
// returns nil when too much is.
func (t *Tokenizer) begin(pool *decider.Pool, p Prompt, blockTokens int) *tokenCall {
	hash := p.Turns[len(p.Turns)-1]
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[hash]; c != nil {
		return c
	}
	if len(t.calls) >= maxTokenCalls {
		return nil
	}
	c := &tokenCall{done: make(chan struct{})}
	t.calls[hash] = c
	seed, own := p.Seed, append([]byte(nil), p.Body...)
	go func() {
		if tokens, ok := t.ask(pool, own); ok {
			c.entry = tokenEntry{kvcache.AppendKeys(nil, seed, tokens, blockTokens), len(tokens)}
			c.ok = true
			t.cache.put(hash, c.entry)
		}
		t.mu.Lock()
		delete(t.calls, hash)
		t.mu.Unlock()
		close(c.done)
	}()
	return c
}

// ask asks one engine of the pool, and another one when that fails.
func (t *Tokenizer) ask(pool *decider.Pool, body []byte) ([]uint32, bool) {
	members := pool.Members()
	first := int(t.turn.Add(1))
	for k := range min(2, len(members)) {
		if tokens, ok := t.askOne(members[(first+k)%len(members)].Address, body); ok {
			return tokens, true
		}
	}
	return nil, false
}

// askOne sends the client's body as it is: what /tokenize does not need it
// passes over.
func (t *Tokenizer) askOne(address string, body []byte) ([]uint32, bool) {
	if address == "" {
		return nil, false
	}
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + address + "/tokenize")
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	req.SetBodyRaw(body)
	if err := t.client.DoTimeout(req, resp, tokenTimeout); err != nil || resp.StatusCode() != fasthttp.StatusOK {
		return nil, false
	}
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := sonic.Unmarshal(resp.Body(), &answer); err != nil || len(answer.Tokens) == 0 {
		return nil, false
	}
	return answer.Tokens, true
}
