package tokenize

import (
	"time"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/keyed"
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
func (t *Tokenizer) start(r *decider.Request, p Prompt, blockTokens int) *call {
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
	pool, adapter, text := r.Pool, r.LoRA, r.TextBytes
	seed, form, own, asked := p.Seed, p.Form, append([]byte(nil), p.Body...), t.now()
	go func() {
		if lists, ok := t.tokenize(pool, adapter, own, form); ok {
			c.entry = newEntry(pool.Hashing(), lists, seed, blockTokens)
			c.entry.text, c.entry.asked = text, asked
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

// refresh asks for the tokens of a prompt again, in the background. Until there is an
// answer e counts, and it counts for learnedFor if there is none.
func (t *Tokenizer) refresh(r *decider.Request, p Prompt, e entry, blockTokens int) {
	e.asked = t.now()
	t.cache.put(p.Turns[len(p.Turns)-1], e)
	t.start(r, p, blockTokens)
}

// newEntry is the entry of a request with these prompts. An engine runs each by itself: the
// cached part of one says nothing about the next.
func newEntry(k *keyed.Key, lists [][]uint32, seed uint64, blockTokens int) entry {
	e := entry{size: blockTokens}
	for _, tokens := range lists {
		e.blocks = kvcache.AppendKeys(e.blocks, k, seed, tokens, blockTokens)
		e.tokens += len(tokens)
	}
	return e
}

// fromIDs gives r the tokens that its body consists of.
func (t *Tokenizer) fromIDs(r *decider.Request, p Prompt, blockTokens int) bool {
	lists, ok := idsOf(p.Body)
	if ok {
		e := newEntry(r.Pool.Hashing(), lists, p.Seed, blockTokens)
		t.ids.Inc()
		r.Tokenized(e.blocks, e.tokens)
	}
	return ok
}

// tokenize asks one replica of the pool that has the adapter, and another one if that
// fails. It returns the tokens of each prompt in a body.
func (t *Tokenizer) tokenize(pool *decider.Pool, adapter string, body []byte, form Form) ([][]uint32, bool) {
	q, err := newQuestion(body, form)
	if err != nil {
		return nil, false
	}
	members := decider.Listing(pool, adapter)
	first := int(t.turn.Add(1))
	for k := range min(2, len(members)) {
		m := members[(first+k)%len(members)]
		if m.Address == "" {
			continue
		}
		lists, err := t.ask(m.Address, q)
		if err == nil {
			t.answered(m.Address, form)
			return lists, true
		}
		t.refused(pool, m, q, err)
	}
	return nil, false
}
