package tokenize

import (
	"errors"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// manners are what is known about an engine's API. Another engine may serve at the same
// address later: nothing counts for longer than learnedFor, and Forget ends all at once.
type manners struct {
	llamaCpp time.Time            // until when it is as llama.cpp is
	noRender [formCount]time.Time // until when it renders no bodies of this form
	proofs   map[shape]proof      // how it converts Messages; not to be read from a copy
	said     [formCount]bool      // it was logged that it does not tokenize this form
}

// learnedFor is how long it counts what an engine's API is found to be.
const learnedFor = 10 * time.Minute

// maxPeers bounds the number of engines that are remembered.
const maxPeers = 4096

// of returns what is known of the engine at an address.
func (t *Tokenizer) of(address string) manners {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.peers[address]; m != nil {
		return *m
	}
	return manners{}
}

// isLlamaCpp reports whether the engine is known to be llama.cpp.
func (m *manners) isLlamaCpp(now time.Time) bool { return now.Before(m.llamaCpp) }

// renders reports whether the engine may render bodies of a form.
func (m *manners) renders(f Form, now time.Time) bool { return !now.Before(m.noRender[f]) }

// learn updates what is known about the engine at an address.
func (t *Tokenizer) learn(address string, change func(*manners)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.peers[address]
	if m == nil {
		if len(t.peers) >= maxPeers {
			clear(t.peers)
		}
		m = &manners{}
		t.peers[address] = m
	}
	change(m)
}

// Forget has the engine at an address asked anew what its API is and, if it has restarted,
// for the tokens of known prompts too: another model or template would change them. An
// engine that only did not answer may be overloaded, and gets no such calls.
func (t *Tokenizer) Forget(address string, restarted bool) {
	t.forget(address)
	if restarted {
		t.forgotten.Store(t.now().UnixNano())
	}
}

// forget forgets what the API of the engine at an address is.
func (t *Tokenizer) forget(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.peers[address]; m != nil {
		*m = manners{said: m.said} // it is logged again once it has tokenized
	}
}

// isStale reports whether the tokens of an entry should be asked for again.
func (t *Tokenizer) isStale(e entry) bool {
	at := e.asked.UnixNano()
	return at <= t.forgotten.Load() || t.now().Sub(e.asked) > learnedFor
}

// answered notes that an engine has tokenized a body of the form.
func (t *Tokenizer) answered(address string, f Form) {
	if m := t.of(address); m.said[f] {
		t.learn(address, func(m *manners) { m.said[f] = false })
	}
}

// complain handles that an engine does not tokenize a body. That it refuses to is logged
// once for each engine.
func (t *Tokenizer) complain(pool *decider.Pool, m decider.Member, q *question, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.forget(m.Address) // the next one may be another
	}
	status, isStatus := errors.AsType[statusError](err)
	if !isStatus && !errors.Is(err, errCount) {
		return
	}
	said := false
	t.learn(m.Address, func(m *manners) { said, m.said[q.form] = m.said[q.form], true })
	switch {
	case said || status >= 500 && status != fasthttp.StatusNotImplemented:
		return
	case !isStatus:
		t.Log.Warn("an engine counts other tokens than its chats have: such requests are placed without tokens", "pool", pool.Name(), "replica", m.Name, "form", q.form)
		return
	}
	t.Log.Warn("an engine refuses to tokenize: such requests are placed without tokens", "pool", pool.Name(), "replica", m.Name, "form", q.form, "status", int(status))
}
