package decider

import (
	"slices"

	"pointsman/decider/kvcache"
)

// routed remembers which replicas were sent which prefixes, for policies that
// follow requests no further than that. A policy that embeds it is a PrefixUser,
// a MemberObserver and an Observer. Beyond capacity blocks, what a replica was
// sent least recently is forgotten.
type routed struct {
	model    kvcache.Model
	capacity int     // blocks a replica
	depth    []int32 // by slot, of the request last matched
	list     []*Replica
}

// routedBlocks bounds what is remembered of a replica, whatever a policy's own
// limits are: 64 MB of prompts, in at most 6.5 MB of memory.
const routedBlocks = 1 << 16

// UsesPrefix implements PrefixUser.
func (*routed) UsesPrefix() bool { return true }

// Members implements MemberObserver.
func (p *routed) Members(replicas []*Replica) {
	for _, r := range p.list {
		if r.index < 0 {
			p.model.Remove(p.of(r))
		}
	}
	for _, r := range replicas {
		if c := p.of(r); c != nil {
			c.SetCapacity(p.capacity)
		} else {
			p.model.Add(r.slot, p.capacity)
		}
	}
	p.list = slices.Clone(replicas)
}

// of is the record of what a member was sent.
func (p *routed) of(r *Replica) *kvcache.Cache { return p.model.At(r.slot) }

// resize makes n blocks the capacity. What does not fit any more is forgotten.
func (p *routed) resize(n int) {
	if n == p.capacity {
		return
	}
	p.capacity = n
	for _, r := range p.list {
		p.of(r).SetCapacity(n)
	}
}

// matchPrefix finds out how much of the request's prompt each replica was sent.
func (p *routed) matchPrefix(r *Request) { p.depth, _ = p.model.Match(r.Blocks, p.depth) }

// rate is the share of the prompt that its first blocks are.
func (p *routed) rate(r *Request, v *View, blocks int32) float64 {
	return float64(int(blocks)*v.BlockTokens) / float64(max(r.Input, 1))
}

// size is how many blocks r was sent and not forgotten.
func (p *routed) size(r *Replica) int { return p.of(r).Len() }

// Reserved implements Observer.
func (p *routed) Reserved(r *Request, replica int) {
	p.of(p.list[replica]).Touch(r.Blocks, 0)
}

// FirstToken implements Observer: the replica that serves is not always the
// one that was chosen.
func (p *routed) FirstToken(r *Request, replica int) {
	if m := p.of(p.list[replica]); m.Match(r.Blocks) < len(r.Blocks) {
		m.Touch(r.Blocks, 0)
	}
}

// Finished implements Observer.
func (*routed) Finished(*Request, int, Outcome) {}

// behind is added to the cost of candidates that are to come after all others.
const behind = 1e12

var (
	_ PrefixUser     = (*routed)(nil)
	_ MemberObserver = (*routed)(nil)
	_ Observer       = (*routed)(nil)
)
