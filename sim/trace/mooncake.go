package trace

import (
	"errors"
	"fmt"
)

const (
	mooncakeBlock = 512 // tokens behind one hash id
	charsPerToken = 4   // of English text
	// commonShare is the share of all requests above which a block belongs to
	// a system prompt and not to a conversation.
	commonShare = 0.01
)

// lengthsLine is a line as the Mooncake project publishes it: token counts,
// and an id for each begun block of the prompt, chained, so that equal ids
// mean equal prompts up to there.
type lengthsLine struct {
	Timestamp float64  `json:"timestamp"` // milliseconds
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
}

func (l *lengthsLine) call() (Call, error) {
	if l.Input < 1 || l.Input > maxCallTokens || l.Output < 0 || l.Output > maxCallTokens {
		return Call{}, fmt.Errorf("input_length %d and output_length %d, want up to %d tokens, input at least 1", l.Input, l.Output, maxCallTokens)
	}
	if len(l.HashIDs) > (l.Input+mooncakeBlock-1)/mooncakeBlock {
		return Call{}, errors.New("more hash_ids than blocks of 512 tokens")
	}
	return Call{
		Input: l.Input, Output: max(l.Output, 1), Estimate: l.Input, Stream: true,
		// All begun blocks for now: guessSessions looks at the last one too.
		Blocks: l.HashIDs,
	}, nil
}

// guessSessions sets the sessions of calls that come without: the first block
// that is not common to many conversations tells two of them apart and is the
// same in all turns of one. Then it drops the ids of blocks that are not full.
func (t *Trace) guessSessions() {
	uses := map[uint64]int{}
	for i := range t.Calls {
		for _, b := range t.Calls[i].Blocks {
			uses[b]++
		}
	}
	common := int(commonShare * float64(len(t.Calls)))
	for i := range t.Calls {
		c := &t.Calls[i]
		for _, b := range c.Blocks {
			if uses[b] <= max(common, 1) {
				c.Session, c.HasSession = Scatter(b), true
				break
			}
		}
		c.Blocks = c.Blocks[:min(len(c.Blocks), c.Input/mooncakeBlock)]
		for k := range c.Blocks {
			c.Blocks[k] = Scatter(c.Blocks[k])
		}
		c.Seen = c.Blocks
	}
}

// hide leaves an agent the blocks within the first visible characters.
func (t *Trace) hide(visible int) {
	if visible == 0 {
		return
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		c.Seen = c.Seen[:min(len(c.Seen), visible/charsPerToken/t.BlockTokens)]
		c.Cut = visible/charsPerToken < c.Input
	}
}

// Scatter makes a hash of an id (the finaliser of MurmurHash3): tables rely on
// keys whose bits are all alike.
func Scatter(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
