package decider

import (
	"time"

	"pointsman/decider/budget"
)

// Request is the input of a policy's decision.
type Request struct {
	ID         ID
	Pool       *Pool
	Model      string   // as configured; "" when no route knows it
	LoRA       string   // Model again, when it is a LoRA adapter
	Session    uint64   // hash of the session id
	Watched    uint64   // Session regardless of its tenant; Watch finds it by this
	Priority   int      // as the body says; lower is sooner, as in vLLM
	Input      int      // prompt tokens, estimated
	Output     int      // the most output tokens asked for, all choices together; -1 = unknown
	Blocks     []uint64 // chained hashes of the prompt's blocks; only for pools whose policy asks
	Stream     bool
	Cut        bool // part of the body is unknown
	Short      bool // Blocks are the first of more that are known: see Bounds.Blocks
	OneToken   bool // the answer is no text, as of embeddings
	HasSession bool
	Fixed      bool   // the proxy has chosen the pool: the request does not spill
	Exclude    string // a replica already tried
	Origin     uint64 // the process of the proxy that asked; 0 = unknown

	// TextBlocks are the chained hashes of all blocks of the prompt's text, for a
	// recording, where Blocks are not.
	TextBlocks []uint64

	// The parts of Input.
	TextBytes   int // prompt text, whose tokens are estimated
	ExactTokens int // prompt tokens besides

	// For pools with an admission.
	Band     int           // index of its band
	Tenant   uint64        // hash of its tenant; 0 = unknown
	Deadline time.Duration // of its first token, by the pool's clock; 0 = none
	Bytes    int           // of its body

	asked   int  // of the first Blocks: cacheModel.ask has counted the request for them
	counted bool // loadEstimate.count has counted it

	// Charge is what its client was charged for it.
	Charge budget.Charge

	// Prompt hashes the prompt for another pool; nil = it cannot be hashed again.
	Prompt Prompt
}

// Prompt is the text of a request's prompt.
type Prompt interface {
	// AppendBlocks appends the chained hashes of the prompt's blocks to dst, as
	// p compares them. It is called from Submit alone, and must not call p's
	// methods that lock it.
	AppendBlocks(dst []uint64, p *Pool) []uint64
}

// bytesPerToken is the usual length of a token of English text in bytes, until
// the engines report better. It serves for load accounting only.
const bytesPerToken = 4

// BlockBytes is the length of a prompt block, the unit in which prefixes are
// compared, in bytes of canonical text: 256 tokens of English. Smaller blocks
// see a little more of a prefix and cost more to look up.
const BlockBytes = 1024

// Key is for choices that must be the same for a whole conversation: a hash of the session
// or, without one, of the request's id.
func (r *Request) Key() uint64 {
	if r.HasSession {
		return scramble(r.Session)
	}
	return r.ID.Hash()
}

// Tokenized gives the request its tokens: the keys of their full blocks, which
// are copied, and their number.
func (r *Request) Tokenized(blocks []uint64, tokens int) {
	r.Blocks = append(r.Blocks[:0], blocks...)
	r.Input = tokens
	r.ExactTokens, r.TextBytes = tokens, 0
}

// TokenizedInPart gives the request the tokens of a prefix, whose text has so many bytes.
// The rest is assumed to have as many tokens a byte: an estimate by the usual ratio could
// be less than the known part.
func (r *Request) TokenizedInPart(blocks []uint64, tokens, text int) {
	r.Blocks = append(r.Blocks[:0], blocks...)
	rest := 0
	if r.TextBytes > text && text > 0 {
		rest = int(float64(r.TextBytes-text) * float64(tokens) / float64(text))
	}
	r.Input = max(tokens, min(tokens+rest, mostContext))
}
