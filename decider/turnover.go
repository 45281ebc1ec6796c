package decider

import "math"

// turnover measures what each replica has computed while the pool computed as much as its
// caches hold: what is older has left them, or will before what is newer. It lives under
// the pool's lock.
type turnover struct {
	added float64 // tokens on all replicas since the last fade
}

// add counts prompt tokens that r computes.
func (t *turnover) add(r *Replica, tokens int) {
	r.computed += float64(tokens)
	t.added += float64(tokens)
}

// restored counts what the cache of r held before a restart as computed.
func (t *turnover) restored(r *Replica, tokens int) { r.computed = max(r.computed, float64(tokens)) }

// fade makes older tokens count less, by what was added. It is called every second.
func (t *turnover) fade(replicas []*Replica) {
	size := 0.0
	for _, r := range replicas {
		size += float64(r.CacheTokens())
	}
	keep := math.Exp(-t.added / max(size, 1))
	for _, r := range replicas {
		r.computed *= keep
	}
	t.added = 0
}

// Turnover is how much r has computed while the pool computed as much as all its caches
// hold, in sizes of its own cache. The more it is, the sooner what is put there displaces
// something of use: an empty cache has 0, and 1 is the mean once all are full.
func (r *Replica) Turnover() float64 { return r.computed / float64(max(r.CacheTokens(), 1)) }
