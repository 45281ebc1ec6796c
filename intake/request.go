package intake

import (
	"bytes"
	"net/http"

	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/prompt"
	"pointsman/session"
)

// Input is the part of a request that a proxy sends.
type Input struct {
	ID       []byte // made by the proxy; the feed names the request by it
	Pool     []byte // set when the proxy has chosen the pool already
	Path     []byte
	Headers  []byte // the raw header block, lines of "Name: value"
	Body     []byte // the body, or as much of its beginning as the proxy holds
	Tail     []byte // the end of a truncated body, when the proxy can send it
	Model    []byte // the model, when the proxy has found it
	BodySize int    // the length of the whole body as far as it is known, bytes
	Exclude  string // a replica already tried for this request
	Origin   uint64 // the process of the proxy, see decider.Request
}

// Request is a request on its way to a pool, with its decision. It is meant to
// be reused: Read resets it. It is not for concurrent use.
type Request struct {
	decider.Request
	Decision decider.Decision
	Budget   budget.Left // what its client may use

	// BeforeWait, unless nil, is called before Prepare waits for an engine.
	BeforeWait func()

	body     *prompt.Body // nil while the request is held
	raw      []byte       // the body that was scanned, until Prepare
	turns    []uint64     // scratch of Prepare
	span     *Span        // set by Handle; nil = it is not traced
	endpoint prompt.Endpoint
	Queued   bool // the body's priority is its place in the proxy's queues
	messages bool // the API is Anthropic's Messages, or that counts its tokens
	separate bool // the prompts of one tenant do not count for another
}

// Read fills r from what a proxy sent and finds its pool. When no pool serves
// the model, it reports false, and r.Decision refuses the request.
func (i *Intake) Read(r *Request, in Input) bool {
	t := i.table.Load()
	if r.body == nil {
		r.body = i.bodies.Get().(*prompt.Body)
		r.body.Key = i.decider.Hashing()
	}
	r.Request = decider.Request{ID: decider.ParseID(in.ID), Blocks: r.Blocks[:0], TextBlocks: r.TextBlocks[:0], Prompt: r, Exclude: in.Exclude, Origin: in.Origin}
	r.Budget = budget.Left{}
	r.Bytes = min(max(in.BodySize, len(in.Body)), maxBody)
	r.endpoint, r.raw = prompt.EndpointOf(in.Path), in.Body
	r.messages = r.endpoint == prompt.Messages || bytes.HasSuffix(in.Path, countTokens)
	r.scan(&in, t.scanLimit)
	i.findSession(t, r, in.Headers)
	r.Watched = r.Session
	r.Queued = t.priority && r.body.HasPriority
	if t.oneModel && !t.shadow && (r.body.Ambiguous || r.hidesModel(in.Body)) {
		r.Decision = decider.Decision{Status: http.StatusBadRequest, Reason: "The body names more than one model.", Why: "two_models"}
		if !r.body.Ambiguous {
			r.Decision.Reason, r.Decision.Why = "The body is no JSON object in UTF-8.", "unreadable"
		}
		return false
	}
	to := i.find(t, r, &in)
	if to == nil {
		return false
	}
	r.Pool = to.pool
	r.estimate(r.Pool.Bounds())
	r.separate = to.classes != nil && to.classes.SeparatePrefixes
	if to.classes != nil {
		to.classes.classify(r, &in, i.decider.Now())
		if r.HasSession && len(to.classes.Tenants) > 0 {
			r.Watched, r.Session = r.Session, session.Of(r.Session, r.Tenant)
		}
	}
	if r.Pool.ComparesText() {
		if most := r.Pool.Bounds().Blocks; most > 0 && cap(r.Blocks) != most {
			r.Blocks = make([]uint64, 0, most) // what is held must be small
		}
		r.Blocks = r.AppendBlocks(r.Blocks, r.Pool)
	}
	if r.Pool.RecordsText() && r.computes() && (!r.Pool.ComparesText() || r.Short) {
		r.TextBlocks = r.body.Blocks(r.TextBlocks, r.promptSeed(r.Pool), decider.BlockBytes)
	}
	return true
}

var countTokens = []byte("/messages/count_tokens")

// OfMessages reports whether the client speaks Anthropic's Messages API, whose errors
// have a form of their own.
func (r *Request) OfMessages() bool { return r.messages }

// hidesModel reports whether an engine may find another model in the body than the scan:
// Python's json also reads UTF-16 and UTF-32.
func (r *Request) hidesModel(body []byte) bool {
	return r.body.Opaque && r.endpoint != prompt.Other && len(body) > 0
}

// scan reads the body, as far as the proxy sent it.
func (r *Request) scan(in *Input, limit int) {
	b := r.body
	b.Scan(in.Body, r.endpoint, limit)
	if len(in.Tail) > 0 {
		b.ScanTail(in.Tail)
	}
	r.Stream, r.Priority = b.Stream, b.Priority
	r.OneToken = r.endpoint == prompt.Embeddings || r.endpoint == prompt.Rerank || r.endpoint == prompt.Score || r.endpoint == prompt.Tokenize
	r.Cut = !b.Complete && (b.Opaque && len(in.Body) > 0 || b.Scanned < len(in.Body) || len(in.Body) < in.BodySize)
	r.TextBytes, r.ExactTokens = b.TextBytes+b.Unseen, b.TokenIDs+b.MediaTokens
	if !b.Complete && !r.Cut {
		// It is broken, or has more parts than are read: the rest is charged like text.
		r.TextBytes = max(r.TextBytes, len(in.Body))
	}
	if !r.computes() {
		r.TextBytes, r.ExactTokens = 0, 0
	}
}

// computes reports whether an engine computes the prompt. Otherwise it only counts the
// tokens: nothing is computed, cached or charged.
func (r *Request) computes() bool { return r.endpoint != prompt.Tokenize }

// estimate sets the lengths of the prompt and of the requested answers. The pool's bounds
// limit what the client claims.
func (r *Request) estimate(bounds decider.Bounds) {
	if !r.computes() {
		r.Input, r.Output = 0, 1
		return
	}
	perToken := r.Pool.BytesPerToken()
	seen := int(float64(r.TextBytes)/perToken) + r.ExactTokens
	r.Input = min(seen, bounds.Context)
	if r.Cut && !r.body.CutMedium && r.body.Scanned > 0 && r.Bytes > r.body.Scanned {
		// The rest is assumed to be like the part that was scanned, unless such a prompt
		// fits into no engine: then none of it is computed.
		whole := float64(r.Bytes) / float64(r.body.Scanned)
		text, exact := int(float64(r.TextBytes)*whole), int(float64(r.ExactTokens)*whole)
		if claimed := int(float64(text)/perToken) + exact; claimed <= bounds.Context {
			r.Input, r.TextBytes, r.ExactTokens = claimed, text, exact
		}
	}
	r.Output = bounds.Output(r.body.MaxTokens, r.body.N, r.Input)
}

// maxBody bounds the length that a client claims of its body, in bytes.
const maxBody = 1 << 40

// AppendBlocks implements decider.Prompt. It is valid until the next Read.
func (r *Request) AppendBlocks(dst []uint64, p *decider.Pool) []uint64 {
	if !r.computes() {
		r.Short = false
		return dst
	}
	seed := r.promptSeed(p)
	most := p.Bounds().Blocks
	if most == 0 {
		r.Short = false
		return r.body.Blocks(dst, seed, decider.BlockBytes)
	}
	before := len(dst)
	dst = r.body.FirstBlocks(dst, seed, decider.BlockBytes, most)
	r.Short = len(dst)-before == most
	return dst
}

// promptSeed is the seed of the keys of text blocks in p.
func (r *Request) promptSeed(p *decider.Pool) uint64 {
	seed := prompt.Seed(p.Hashing(), []byte(p.Name()), []byte(r.LoRA), r.body.CacheSalt)
	if r.separate {
		seed = prompt.Separate(p.Hashing(), seed, r.Tenant)
	}
	return seed
}

// seed is the seed of the keys of the prompt's token blocks.
func (r *Request) seed() uint64 {
	return prompt.Seed(r.Pool.Hashing(), []byte(r.Pool.Name()), []byte(r.LoRA), r.body.CacheSalt)
}

// release returns the memory that only reading a request needs. The pool may hold the
// request already: it does not use these fields.
func (r *Request) release(i *Intake) {
	i.bodies.Put(r.body)
	r.body, r.raw, r.turns = nil, nil, nil
}

// Submit submits a request that was prepared to its pool, as Handle does. w is
// notified when a request that was held is decided.
func (r *Request) Submit(w decider.Waiter) (isHeld bool) {
	return r.Pool.Submit(&r.Request, &r.Decision, w)
}

var _ decider.Prompt = (*Request)(nil)
