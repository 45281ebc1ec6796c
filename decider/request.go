package decider

import (
	"time"

	"pointsman/prompt"
	"pointsman/session"
)

// Input is what a proxy tells of a request. Nothing of it is kept by Read.
type Input struct {
	ID       []byte // made by the proxy; the feed names the request by it
	Pool     []byte // set when the proxy has fixed the pool already
	Path     []byte
	Headers  []byte // the raw header block, lines of "Name: value"
	Body     []byte // the body, or as much of its beginning as the proxy holds
	Tail     []byte // the end of a body that is cut, when the proxy can give it
	Model    []byte // the model, when the proxy has found it itself
	BodySize int    // the length of the whole body as far as it is known, bytes
	Exclude  string // a replica already tried for this request
}

// Request is what policies decide by. It is reused: Read resets it.
type Request struct {
	ID         ID
	Pool       *Pool
	Endpoint   prompt.Endpoint
	Model      string // as configured; "" when no route knows it
	LoRA       string // Model again, when it is a LoRA adapter
	Session    uint64 // hash of the session id
	HasSession bool
	Priority   int      // as the body says; lower is sooner, as in vLLM
	Input      int      // prompt tokens, estimated
	Output     int      // the most output tokens asked for, all choices together; -1 = not said
	Blocks     []uint64 // chained hashes of the prompt's blocks; only for pools whose policy asks
	Stream     bool
	Cut        bool // not all of the body was seen
	Exclude    string

	text  int // bytes of prompt text
	exact int // prompt tokens besides
	// With an admission only:
	Band     int           // place of its band
	Tenant   uint64        // hash of who sends it; 0 = not known
	Deadline time.Duration // of its first token, by the pool's clock; 0 = none
	Bytes    int           // of its body

	fixed bool         // the proxy has chosen the pool
	body  *prompt.Body // scratch of Read
}

// bytesPerToken is the usual length of a token of English text in bytes, until
// the engines tell better. It serves for load accounting only.
const bytesPerToken = 4

// Read fills r from what a proxy saw and finds its pool. When no pool serves
// the model, it answers the request itself: out holds the status, and Read
// reports false.
func (d *Decider) Read(r *Request, in Input, out *Decision) bool {
	t := d.table.Load()
	if r.body == nil {
		r.body = new(prompt.Body)
	}
	*r = Request{ID: ParseID(in.ID), Blocks: r.Blocks[:0], body: r.body, Exclude: in.Exclude}
	r.Endpoint = prompt.EndpointOf(in.Path)
	if id, ok := t.session.Find(in.Headers); ok && len(id) > 0 {
		r.Session, r.HasSession = session.Key(id), true
	}

	b := r.body
	b.Scan(in.Body, r.Endpoint, t.scanLimit)
	if len(in.Tail) > 0 {
		b.ScanTail(in.Tail)
	}
	r.Stream, r.Priority = b.Stream, b.Priority
	r.Cut = !b.Complete && (b.Scanned < len(in.Body) || len(in.Body) < in.BodySize)
	r.Output = -1
	if b.MaxTokens >= 0 {
		r.Output = b.MaxTokens * b.N
	}
	r.text, r.exact = b.TextBytes, b.TokenIDs+b.MediaTokens
	if r.Cut && b.Scanned > 0 && in.BodySize > b.Scanned {
		// What was not seen is taken to be like what was.
		whole := float64(in.BodySize) / float64(b.Scanned)
		r.text, r.exact = int(float64(r.text)*whole), int(float64(r.exact)*whole)
	}

	if !d.find(t, r, in, out) {
		return false
	}
	r.Input = int(float64(r.text)/r.Pool.BytesPerToken()) + r.exact
	if s := r.Pool.admission.current.Load(); s != nil {
		s.classify(r, &in, d.clock())
	}
	if p := r.Pool; p.usesPrefix.Load() && p.tokens.Load() == nil {
		r.Blocks = b.Blocks(r.Blocks, prompt.Seed(p.seed, []byte(r.LoRA), b.CacheSalt), BlockBytes)
	}
	return true
}

// BlockBytes is the length of a prompt block, the unit in which prefixes are
// compared, in bytes of canonical text: 256 tokens of English. Smaller blocks
// see a little more of a prefix and cost more to look up.
const BlockBytes = 1024

// find sets the pool of r.
func (d *Decider) find(t *table, r *Request, in Input, out *Decision) bool {
	model := r.body.Model
	if model == nil {
		model = in.Model
	}
	if model == nil && r.Cut {
		d.stats.modelUnseen.Add(1)
		model, _ = t.modelHeader.Find(in.Headers)
	}
	if p := t.poolNamed(in.Pool); p != nil {
		// The proxy chose the pool: the model serves for records alone.
		r.Pool, r.fixed = p, true
		if rt := t.models[string(model)]; rt != nil {
			r.Model, r.LoRA = rt.name, rt.lora
		} else if rt := (*d.listed.Load())[string(model)]; rt != nil && rt.splits[0].pool == p {
			r.Model, r.LoRA = rt.name, rt.lora
		}
		return true
	}
	if rt := (*d.listed.Load())[string(model)]; rt != nil && t.models[string(model)] == nil {
		r.Model, r.LoRA, r.Pool = rt.name, rt.lora, rt.splits[0].pool
		return true
	}
	if t.route(r, model) {
		return true
	}
	d.stats.modelUnknown.Add(1)
	*out = Decision{Status: 404, Reason: unknownModel(model), Why: "unknown_model"}
	return false
}

// splitKey is what a weighted route goes by: the session where there is one,
// so that a conversation stays on its branch, else the request.
func (r *Request) splitKey() uint64 {
	if r.HasSession {
		return scramble(r.Session)
	}
	return r.ID.Hash()
}
