package decider

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"pointsman/session"
)

// table is the immutable part of a Decider: what Apply was given.
type table struct {
	pools       []*Pool
	models      map[string]*route
	fallback    *Pool
	session     session.Headers
	modelHeader session.Headers
	scanLimit   int
}

// route is where the requests for one model go.
type route struct {
	name   string // the model, as configured: request records share this string
	lora   string // the same, when the model is a LoRA adapter
	splits []branch
	total  uint64
}

type branch struct {
	pool   *Pool
	weight uint64
}

// pick chooses a branch by key, the same one for equal keys.
func (r *route) pick(key uint64) *Pool {
	n := key % r.total
	for _, b := range r.splits {
		if n < b.weight {
			return b.pool
		}
		n -= b.weight
	}
	return nil
}

func (t *table) pool(name string) *Pool {
	for _, p := range t.pools {
		if p.name == name {
			return p
		}
	}
	return nil
}

// poolNamed is pool for a name on the wire; it does not allocate.
func (t *table) poolNamed(name []byte) *Pool {
	for _, p := range t.pools {
		if p.name == string(name) {
			return p
		}
	}
	return nil
}

// route sets the pool of r. model is what the body, or a header in its place,
// names; empty when neither does. It reports false when no pool serves the
// model.
func (t *table) route(r *Request, model []byte) bool {
	if rt := t.models[string(model)]; rt != nil {
		r.Model, r.LoRA = rt.name, rt.lora
		r.Pool = rt.pick(r.splitKey())
		return true
	}
	switch {
	case t.fallback != nil:
		r.Pool = t.fallback
	case len(model) == 0 && len(t.pools) > 0:
		// No model, or none that can be seen: an engine may well serve it, or
		// tell what is wrong. The proxy by itself goes to the first pool too.
		r.Pool = t.pools[0]
	case t.catchAll() != nil:
		r.Pool = t.catchAll()
	}
	return r.Pool != nil
}

// catchAll is the only pool, when it names no models: it takes them all.
func (t *table) catchAll() *Pool {
	if len(t.pools) == 1 && len(t.models) == 0 {
		return t.pools[0]
	}
	return nil
}

// unknownModel is the message of a 404. It is put into a JSON string by the
// proxy, so it holds nothing that JSON would have to escape.
func unknownModel(model []byte) string {
	const most = 128
	name := string(model)
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	clean := func(c rune) rune {
		if c < ' ' || c == '"' || c == '\\' || c == 0x7f || c == utf8.RuneError {
			return '?'
		}
		return c
	}
	return fmt.Sprintf("The model '%s' does not exist.", strings.Map(clean, name))
}
