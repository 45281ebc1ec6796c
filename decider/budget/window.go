package budget

import "time"

// counter counts the tokens of one window in parts of its step.
type counter struct {
	parts []int64 // nil = nothing was counted yet
	at    int64   // number of the current part
	sum   int64
}

// epoch is the origin of the numbers of parts, on the ledger's clock: earlier than any part
// of an earlier life.
const epoch = 30 * 24 * time.Hour

// part is the number of the part of a time.
func part(w Window, at time.Duration) int64 { return int64((at + epoch) / w.step()) }

// slidesOut is the time until tokens used now are out of the window.
func (w Window) slidesOut(now time.Duration) time.Duration {
	return time.Duration(part(w, now)+int64(w.span()/w.step())+1)*w.step() - epoch - now
}

// advance drops parts that are older than the window.
func (c *counter) advance(w Window, now time.Duration) {
	n := part(w, now)
	if c.parts == nil || n <= c.at {
		return
	}
	if n-c.at >= int64(len(c.parts)) || c.sum == 0 {
		clear(c.parts)
		c.at, c.sum = n, 0
		return
	}
	for c.at < n {
		c.at++
		p := &c.parts[c.at%int64(len(c.parts))]
		c.sum -= *p
		*p = 0
	}
}

// add counts tokens that were used at that time; a negative number takes some back. Tokens
// older than the window do not count.
func (c *counter) add(w Window, tokens int64, at, now time.Duration) {
	if c.parts == nil {
		c.parts = make([]int64, w.span()/w.step()+1)
		c.at = part(w, now)
	}
	c.advance(w, now)
	n := part(w, at)
	if n > c.at || c.at-n >= int64(len(c.parts)) {
		return
	}
	p := &c.parts[n%int64(len(c.parts))]
	tokens = max(-*p, min(tokens, mostTokens-*p))
	*p += tokens
	c.sum += tokens
}

// mostTokens bounds what one part counts, so that sums cannot overflow.
const mostTokens = 1 << 50

// until is the time until at most left of the counted tokens still count.
func (c *counter) until(w Window, left int64, now time.Duration) time.Duration {
	if c.sum <= left {
		return 0
	}
	sum := c.sum
	size := int64(len(c.parts))
	for k := c.at - size + 1; k <= c.at; k++ {
		if k < 0 {
			continue
		}
		if sum -= c.parts[k%size]; sum <= left {
			return time.Duration(k+size)*w.step() - epoch - now
		}
	}
	return w.span()
}

// empty makes it count nothing; its memory stays.
func (c *counter) empty() {
	clear(c.parts)
	c.sum = 0
}
