package trace

import (
	"errors"
	"fmt"
)

const (
	mooncakeBlock = 512 // tokens per hash id
	charsPerToken = 4   // of English text
	// commonShare is the share of all requests above which a block belongs to a
	// system prompt and not to a conversation.
	commonShare = 0.01
)

// lengthsLine is a line in the form of the Mooncake project: token counts, and
// one id for each block of the prompt, the last of which may be partial. Ids are
// chained: equal ids mean equal prompts up to there.
type lengthsLine struct {
	Timestamp stamp    `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
	MaxTokens int      `json:"max_tokens"`
	// These are extensions.
	BlockTokens int    `json:"block_tokens"` // in a block; 0 = mooncakeBlock
	Session     string `json:"session"`
}

// maxBlockTokens bounds the tokens in a block.
const maxBlockTokens = 1 << 16

func (l *lengthsLine) request() (Request, error) {
	if l.Input < 1 || l.Input > maxTokens || l.Output < 0 || l.Output > maxTokens {
		return Request{}, fmt.Errorf("input_length %d and output_length %d, want up to %d tokens, input at least 1", l.Input, l.Output, maxTokens)
	}
	if l.BlockTokens < 0 || l.BlockTokens > maxBlockTokens {
		return Request{}, fmt.Errorf("block_tokens %d, want up to %d", l.BlockTokens, maxBlockTokens)
	}
	return Request{
		Input: l.Input, Output: max(l.Output, 1), Estimate: l.Input, Stream: true, MaxTokens: min(max(l.MaxTokens, 0), maxTokens),
		// Partial blocks included: inferSessions needs them, wholeBlocks drops them.
		Blocks: l.HashIDs,
	}, nil
}

// lengths reads a line of lengths and block ids.
func (p *parser) lengths(l *lengthsLine) error {
	r, err := l.request()
	if err != nil {
		return err
	}
	block := l.BlockTokens
	if block == 0 {
		block = mooncakeBlock
	}
	switch {
	case p.recording.block == 0:
		p.recording.block = block
	case p.recording.block != block:
		return fmt.Errorf("block_tokens %d, but %d before", block, p.recording.block)
	}
	if len(l.HashIDs) > (l.Input+block-1)/block {
		return fmt.Errorf("more hash_ids than blocks of %d tokens", block)
	}
	if l.Session != "" {
		r.Session, r.HasSession = keyOf(l.Session), true
	}
	return p.add(lengthsKind, r, l.Timestamp)
}

// inferSessions sets the sessions of requests that were recorded without. The
// first block that is not common to many conversations identifies a
// conversation and is the same in all its turns.
func (t *Trace) inferSessions() {
	uses := map[uint64]int{}
	for i := range t.Requests {
		for _, b := range t.Requests[i].Blocks {
			uses[b]++
		}
	}
	common := int(commonShare * float64(len(t.Requests)))
	for i := range t.Requests {
		r := &t.Requests[i]
		for _, b := range r.Blocks {
			if uses[b] <= max(common, 1) {
				r.Session, r.HasSession = Hash(b), true
				break
			}
		}
	}
}

// wholeBlocks drops the partial blocks and makes keys of the ids.
func (t *Trace) wholeBlocks() {
	for i := range t.Requests {
		r := &t.Requests[i]
		r.Blocks = r.Blocks[:min(len(r.Blocks), r.Input/t.BlockTokens)]
		for k := range r.Blocks {
			r.Blocks[k] = Hash(r.Blocks[k])
		}
		r.Visible = r.Blocks
	}
}

// Truncate limits what an agent sees of a trace without text to the blocks within
// the first chars characters; 0 means no limit.
func (t *Trace) Truncate(chars int) {
	if chars == 0 {
		return
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		r.Visible = r.Visible[:min(len(r.Visible), chars/charsPerToken/t.BlockTokens)]
		r.Truncated = r.Truncated || chars/charsPerToken < r.Input
	}
}

// Hash returns a uniformly distributed key for a small id (the finaliser of
// MurmurHash3): hash tables expect keys in which all bits vary.
func Hash(id uint64) uint64 {
	id ^= id >> 33
	id *= 0xff51afd7ed558ccd
	id ^= id >> 33
	id *= 0xc4ceb9fe1a85ec53
	return id ^ id>>33
}

var errObject = errors.New("not a JSON object of a known form")
