package decidertest

import (
	"math/rand/v2"

	"pointsman/decider"
)

// BlockTokens is the number of tokens in the blocks of Document.
const BlockTokens = decider.DefaultBlockTokens

// Key returns a block key or session hash for the number n, the same for equal
// numbers.
func Key(n uint64) uint64 { return rand.NewPCG(n, 0).Uint64() }

// Keys appends to dst the keys of the first n blocks of a document. Documents
// with different numbers have no block in common.
func Keys(dst []uint64, document, n int) []uint64 {
	for k := range n {
		dst = append(dst, Key(uint64(document)<<32|uint64(k)))
	}
	return dst
}

// Document makes the prompt of a request the first n blocks of a document, and more tokens
// after them. The answer is streamed.
func Document(document, n, more int) func(*decider.Request) {
	return func(r *decider.Request) {
		r.Blocks = Keys(r.Blocks[:0], document, n)
		r.Input, r.Stream = n*BlockTokens+more, true
	}
}

// Blocks makes these the blocks of the prompt, and the prompt as long as they.
func Blocks(blocks ...uint64) func(*decider.Request) {
	return func(r *decider.Request) { r.Blocks, r.Input = blocks, len(blocks)*BlockTokens }
}

// Tokens makes the prompt of a request n tokens long.
func Tokens(n int) func(*decider.Request) { return func(r *decider.Request) { r.Input = n } }

// InSession puts a request into the session of that number.
func InSession(n int) func(*decider.Request) {
	return func(r *decider.Request) { r.Session, r.HasSession = Key(uint64(n)), true }
}

// WithLoRA makes a request one for that adapter.
func WithLoRA(name string) func(*decider.Request) {
	return func(r *decider.Request) { r.LoRA = name }
}
