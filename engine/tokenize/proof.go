package tokenize

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"
)

// Versions of engines turn bodies of Messages into chats in different ways. So the first
// body of each shape is counted by the engine too (/v1/messages/count_tokens): if our
// chat has as many tokens, bodies of that shape are converted in the same way from
// then on, else their tokens stay unknown.

// proof is what is known of bodies of one shape at one engine.
type proof struct {
	other  shape // the choices that the engine makes in the other way than usual
	failed bool  // none of them gives as many tokens as it counts
	until  time.Time
}

// failureTime is how long a failure counts: for less than a proof, as one strange body may be
// its cause.
const failureTime = 10 * time.Second

// errCount is the error for a body of which an engine counts other tokens.
var errCount = errors.New("the engine counts other tokens")

// maxProofs bounds the shapes of one engine that something is known of.
const maxProofs = 256

// proofOf returns what is known of a shape at an engine.
func (t *Tokenizer) proofOf(address string, s shape) (p proof, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.apis[address]; a != nil {
		p, ok = a.proofs[s]
	}
	return p, ok && t.now().Before(p.until)
}

// proven keeps what was found of a shape at an engine.
func (t *Tokenizer) proven(address string, s shape, p proof) {
	p.until = t.now().Add(learnedFor)
	if p.failed {
		p.until = t.now().Add(failureTime)
	}
	t.learn(address, func(a *api) {
		if a.proofs == nil {
			a.proofs = map[shape]proof{}
		}
		if len(a.proofs) >= maxProofs {
			clear(a.proofs)
		}
		a.proofs[s] = p
	})
}

// askMessages asks for the tokens of a body of Messages.
func (t *Tokenizer) askMessages(address string, q *question) ([][]uint32, error) {
	c, s, err := convertMessages(q.body, 0)
	if err != nil {
		return nil, err
	}
	if p, ok := t.proofOf(address, s); ok {
		if p.failed {
			return nil, errCount
		}
		if p.other != 0 {
			if c, _, err = convertMessages(q.body, p.other); err != nil {
				return nil, err
			}
		}
		return t.askChat(address, c)
	}
	var count struct {
		Tokens int `json:"input_tokens"`
	}
	if err := t.post(address, "/v1/messages/count_tokens", q.body, &count); err != nil {
		if status, ok := errors.AsType[statusError](err); !ok || status != fasthttp.StatusUnauthorized {
			return nil, err
		}
		// It wants a key, and counts for nobody without: what does not depend on its
		// template is taken to be as usual.
		p := proof{failed: s&choices != 0}
		if t.proven(address, s, p); p.failed {
			return nil, err
		}
		return t.askChat(address, c)
	}
	lists, other, err := t.match(address, q, c, s, count.Tokens)
	if _, refused := errors.AsType[statusError](err); err == nil || refused || errors.Is(err, errCount) {
		t.proven(address, s, proof{other: other, failed: err != nil})
	}
	return lists, err
}

// match returns the tokens of a body if one of the ways to convert it gives as many as
// the engine counts, and errCount if none does. c is the usual one.
func (t *Tokenizer) match(address string, q *question, c *chatBody, s shape, count int) ([][]uint32, shape, error) {
	last := errCount
	for other := shape(0); other <= choices; other++ {
		if other&^(s&choices) != 0 {
			continue
		}
		if other != 0 {
			var err error
			if c, _, err = convertMessages(q.body, other); err != nil {
				return nil, 0, err
			}
		}
		lists, err := t.askChat(address, c)
		if _, refused := errors.AsType[statusError](err); err != nil && !refused {
			return nil, 0, err
		}
		if err == nil && len(lists) == 1 && len(lists[0]) == count {
			return lists, other, nil
		}
		last = errCount
		if err != nil {
			last = err // the template refuses it: it may take another one
		}
	}
	return nil, 0, last
}
