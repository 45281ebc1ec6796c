package tokenize

import (
	"errors"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// api is what was learned about an engine's API. Another engine may serve at the same
// address later: nothing counts for longer than learnedFor, and Forget ends all at once.
type api struct {
	llamaCpp time.Time            // until when it counts as llama.cpp
	noRender [formCount]time.Time // until when it counts as rendering no bodies of this form
	proofs   map[shape]proof      // how it converts Messages; not to be read from a copy
	said     [formCount]bool      // it was logged that it does not tokenize this form
}

// learnedFor is how long what was learned about an engine counts.
const learnedFor = 10 * time.Minute

// maxAPIs bounds the engines that are remembered.
const maxAPIs = 4096

// of returns what is known of the engine at an address.
func (t *Tokenizer) of(address string) api {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.apis[address]; a != nil {
		return *a
	}
	return api{}
}

// isLlamaCpp reports whether the engine is known to be llama.cpp.
func (a *api) isLlamaCpp(now time.Time) bool { return now.Before(a.llamaCpp) }

// renders reports whether the engine may render bodies of a form.
func (a *api) renders(f Form, now time.Time) bool { return !now.Before(a.noRender[f]) }

// learn updates what is known about the engine at an address.
func (t *Tokenizer) learn(address string, change func(*api)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.apis[address]
	if a == nil {
		if len(t.apis) >= maxAPIs {
			clear(t.apis)
		}
		a = &api{}
		t.apis[address] = a
	}
	change(a)
}

// Forget makes t learn again what the API of the engine at an address is. If the engine has
// restarted, t also asks again for the tokens of known prompts: another model or template
// changes them. An engine that only did not answer may be overloaded, and gets no such calls.
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
	if a := t.apis[address]; a != nil {
		*a = api{said: a.said} // answered ends that
	}
}

// isStale reports whether the tokens of an entry should be asked for again.
func (t *Tokenizer) isStale(e entry) bool {
	at := e.asked.UnixNano()
	return at <= t.forgotten.Load() || t.now().Sub(e.asked) > learnedFor
}

// answered notes that an engine has tokenized a body of the form: its next refusal is logged.
func (t *Tokenizer) answered(address string, f Form) {
	if a := t.of(address); a.said[f] {
		t.learn(address, func(a *api) { a.said[f] = false })
	}
}

// refused handles that an engine has not tokenized a body. A refusal is logged once for each
// engine and form.
func (t *Tokenizer) refused(pool *decider.Pool, m decider.Member, q *question, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.forget(m.Address) // another engine may come
	}
	status, isStatus := errors.AsType[statusError](err)
	if !isStatus && !errors.Is(err, errCount) {
		return
	}
	said := false
	t.learn(m.Address, func(a *api) { said, a.said[q.form] = a.said[q.form], true })
	switch {
	case said || status >= 500 && status != fasthttp.StatusNotImplemented:
		return
	case !isStatus:
		t.Log.Warn("an engine counts other tokens than its chats have: such requests are placed without tokens", "pool", pool.Name(), "replica", m.Name, "form", q.form)
		return
	}
	t.Log.Warn("an engine refuses to tokenize: such requests are placed without tokens", "pool", pool.Name(), "replica", m.Name, "form", q.form, "status", int(status))
}
