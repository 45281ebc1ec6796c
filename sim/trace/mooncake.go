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

// mooncakeLine is a line in the form of the Mooncake project: token counts, and
// one id for each block of the prompt, the last of which may be partial. Ids are
// chained: equal ids mean equal prompts up to there.
type mooncakeLine struct {
	Timestamp float64  `json:"timestamp"` // milliseconds
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
	MaxTokens int      `json:"max_tokens"`
}

func (l *mooncakeLine) request() (Request, error) {
	if l.Input < 1 || l.Input > maxTokens || l.Output < 0 || l.Output > maxTokens {
		return Request{}, fmt.Errorf("input_length %d and output_length %d, want up to %d tokens, input at least 1", l.Input, l.Output, maxTokens)
	}
	if len(l.HashIDs) > (l.Input+mooncakeBlock-1)/mooncakeBlock {
		return Request{}, errors.New("more hash_ids than blocks of 512 tokens")
	}
	return Request{
		Input: l.Input, Output: max(l.Output, 1), Estimate: l.Input, Stream: true, MaxTokens: min(max(l.MaxTokens, 0), maxTokens),
		// Partial blocks included: inferSessions needs them and drops them.
		Blocks: l.HashIDs,
	}, nil
}

// inferSessions sets the sessions of requests that were recorded without. The
// first block that is not common to many conversations identifies a
// conversation and is the same in all its turns. It also drops the partial
// blocks.
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
		r.Blocks = r.Blocks[:min(len(r.Blocks), r.Input/mooncakeBlock)]
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
		r.Truncated = chars/charsPerToken < r.Input
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
