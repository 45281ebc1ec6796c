package tokenize

import (
	"time"

	"github.com/bytedance/sonic"
	"github.com/valyala/fasthttp"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// call is one call to an engine, shared by all requests with the same prompt.
type call struct {
	done  chan struct{}
	entry entry // valid once done is closed
	ok    bool
}

// wait waits for the answer. It returns false after the timeout.
func (c *call) wait(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

// start starts a call for the tokens of a prompt, or returns the one that is pending.
// It returns nil if too many are.
func (t *Tokenizer) start(pool *decider.Pool, p Prompt, blockTokens int) *call {
	hash := p.Turns[len(p.Turns)-1]
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[hash]; c != nil {
		return c
	}
	if len(t.calls) >= maxCalls {
		return nil
	}
	c := &call{done: make(chan struct{})}
	t.calls[hash] = c
	seed, own := p.Seed, append([]byte(nil), p.Body...)
	go func() {
		if tokens, ok := t.tokenize(pool, own); ok {
			c.entry = entry{kvcache.AppendKeys(nil, seed, tokens, blockTokens), len(tokens), blockTokens}
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

// tokenize asks one replica of the pool, and another one if that fails.
func (t *Tokenizer) tokenize(pool *decider.Pool, body []byte) ([]uint32, bool) {
	members := pool.Members()
	first := int(t.turn.Add(1))
	for k := range min(2, len(members)) {
		if tokens, ok := t.tokenizeAt(members[(first+k)%len(members)].Address, body); ok {
			return tokens, true
		}
	}
	return nil, false
}

// tokenizeAt asks the engine at an address. It sends the client's body as it is;
// /tokenize ignores the fields that it does not need.
func (t *Tokenizer) tokenizeAt(address string, body []byte) ([]uint32, bool) {
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
	if err := t.client.DoTimeout(req, resp, callTimeout); err != nil || resp.StatusCode() != fasthttp.StatusOK {
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
