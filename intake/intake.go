package intake

import (
	"sync"
	"sync/atomic"

	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/engine/tokenize"
	"pointsman/prompt"
	"pointsman/session"
)

// DecisionBuckets are the bounds, in seconds, of the histograms of the time
// that a decision takes.
var DecisionBuckets = []float64{10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3}

// Intake passes the requests of proxies to the pools of a decider. Its methods are safe
// for concurrent use, but for Apply, whose calls must not overlap.
type Intake struct {
	// Tokenizer, unless nil, tokenizes prompts for pools whose policy compares
	// tokens. It is set before the first request.
	Tokenizer *tokenize.Tokenizer

	decider *decider.Decider
	table   atomic.Pointer[table] // what Apply was given; immutable

	listing  sync.Mutex // one list at a time
	adapters atomic.Pointer[adapters]
	models   atomic.Pointer[[]byte] // nil = none is to be given out
	started  int64                  // Unix time

	bodies sync.Pool // scans without a request

	responses responses
	tracer    atomic.Pointer[Tracer] // nil = nothing is traced

	modelUnknown atomic.Uint64
	modelUnseen  atomic.Uint64
}

// Config says which pools there are and which requests they get.
type Config struct {
	Pools       []decider.PoolConfig
	Classes     map[string]Classes // by pool, for those with an admission
	Routes      map[string][]Split // model → weighted pools; overrides PoolConfig.Models
	DefaultPool string             // takes unknown and unseen models; "" = none
	Session     session.Headers
	// SessionFields are fields of the body that name the session, if no header does.
	SessionFields []SessionField
	ModelHeader   session.Headers // names the model of a body too long to show it
	// OneModel refuses bodies that name two different models: decoders differ in
	// which one they take.
	OneModel bool
	// Shadow never refuses a request: all pools leave theirs to the proxy.
	Shadow bool
	// Budgets configures the limits of tokens; BudgetKeys are the headers with the clients'
	// keys.
	Budgets    budget.Config
	BudgetKeys session.Headers
	// ListModels has Models list those of all pools.
	ListModels bool
	// BodyPriority lets the priority in a body set the request's place in the
	// proxy's queues.
	BodyPriority bool
	ScanLimit    int // bytes of a body that are scanned; 0 = prompt.DefaultLimit
}

// Split is one branch of a weighted route.
type Split struct {
	Pool   string
	Weight int
}

// SessionHeaders are the headers that carry a session id.
func (i *Intake) SessionHeaders() []string { return i.table.Load().session.Names() }

// Stats are counts since the start that belong to no pool.
type Stats struct {
	ModelUnknown uint64 // requests for a model that no pool serves
	ModelUnseen  uint64 // bodies too long to show their model
}

// New returns an Intake that takes no requests until Apply. d must not have
// another one.
func New(d *decider.Decider) *Intake {
	i := &Intake{decider: d, started: unixNow()}
	i.bodies.New = func() any { return new(prompt.Body) }
	i.table.Store(&table{})
	i.adapters.Store(&adapters{})
	d.AdaptersChanged = i.listAdapters
	return i
}

// Decider is the decider whose pools take the requests.
func (i *Intake) Decider() *decider.Decider { return i.decider }

// Apply makes c the configuration of the intake and of its decider. Requests
// find either the old routes or the new ones, and no pool is closed while a
// route leads to it.
func (i *Intake) Apply(c Config) {
	if b := i.decider.Budgets; b != nil {
		b.Apply(c.Budgets)
	}
	retire := i.decider.Replace(decider.Config{Pools: c.Pools})
	i.table.Store(newTable(c, i.decider))
	retire()
	i.listAdapters()
}

// Stats returns the current counts.
func (i *Intake) Stats() Stats { return Stats{i.modelUnknown.Load(), i.modelUnseen.Load()} }

// Handle reads a request, prepares it and submits it to its pool. When it reports true,
// the request is held: r belongs to the pool until w.Decided is called. Otherwise
// r.Decision is the answer. Handle does not keep in. w.Decided may be called before
// Handle returns; r must not be reused before it has.
func (i *Intake) Handle(r *Request, in Input, w decider.Waiter) (isHeld bool) {
	i.begin(r, in.Headers)
	if !i.Read(r, in) || !i.Prepare(r) || !i.charge(r, &in) || !r.Submit(w) {
		return false
	}
	r.release(i)
	return true
}

// Prepare completes a request that was read. If its pool's policy compares tokens, it gets
// those of the prompt, and may wait for an engine. When it reports false, r.Decision
// refuses the request.
func (i *Intake) Prepare(r *Request) bool {
	body := r.raw
	r.raw = nil
	if i.Tokenizer == nil || r.Pool.Tokens() == nil {
		return true
	}
	form, ok := r.form()
	if !ok {
		return true
	}
	seed := r.seed()
	turns := seed
	// The same messages are other tokens in another API, or with another template.
	if form != tokenize.Completions {
		turns = prompt.Separate(r.Pool.Hashing(), seed, uint64(form))
	}
	if r.body.Template != 0 {
		turns = prompt.Separate(r.Pool.Hashing(), turns, r.body.Template)
	}
	r.turns = r.body.Turns(r.turns[:0], turns)
	ok = i.Tokenizer.Prepare(&r.Request, tokenize.Prompt{
		Body: body, Turns: r.turns, Seed: seed, Form: form, IDs: r.body.TokenIDs > 0,
		BeforeWait: r.BeforeWait,
	}, &r.Decision)
	return ok || r.Pool.Shadows(&r.Request) // which refuses nothing
}

// form returns which API's prompt the request has, and whether it can be tokenized. An
// engine that goes on with an earlier response has more of a prompt than is in the body.
func (r *Request) form() (f tokenize.Form, ok bool) {
	switch r.endpoint {
	case prompt.Completions:
		return tokenize.Completions, true
	case prompt.ChatCompletions:
		return tokenize.Chat, true
	case prompt.Messages:
		return tokenize.Messages, true
	case prompt.Responses:
		return tokenize.Responses, len(r.body.PreviousResponse) == 0
	}
	return 0, false
}
