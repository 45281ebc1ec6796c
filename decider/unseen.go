package decider

import "time"

// unseen returns the request's blocks with a guess at those of the part of the
// prompt that was not seen: a key for each block that it is long, following
// from the last one that was seen. So two prompts that are the same as far as
// they were seen count as the same to the end of the shorter one. That holds
// for the turns of a conversation, but not where no more was seen than what
// many conversations begin with: then requests for the last block that was seen
// come faster than one conversation has turns, and nothing is guessed. The
// result is valid until the next call.
func (p *Pool) unseen(r *Request, now time.Duration) []uint64 {
	n := r.Input / p.config.BlockTokens
	if p.mirror == nil || !r.Cut || len(r.Blocks) == 0 || len(r.Blocks) >= n {
		return r.Blocks
	}
	if p.mirror.heat(r.Blocks[len(r.Blocks)-1], milliseconds(now)) > turnsHeat {
		return r.Blocks
	}
	b := append(p.guessed[:0], r.Blocks...)
	key := b[len(b)-1]
	for len(b) < min(n, maxGuessed) {
		key = scramble(key + golden)
		b = append(b, key)
	}
	p.guessed = b
	return b
}

// turnsHeat is the heat that the turns of one conversation reach at most: one
// every 15 seconds.
const turnsHeat = 4

// maxGuessed bounds the guess: a length is only what the client claims.
const maxGuessed = 1 << 10
