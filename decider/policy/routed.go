package policy

import (
	"slices"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// routed remembers which prefixes each replica was sent, for policies that do not follow
// requests any further. A policy that embeds it is a PrefixUser, a MemberObserver and an
// Observer. Beyond capacity blocks, it forgets those that a replica was sent least
// recently.
type routed struct {
	model    kvcache.Model
	capacity int     // blocks per replica
	depth    []int32 // by slot, of the request last matched
	list     []*decider.Replica
}

// routedBlocks bounds the remembered blocks of a replica, whatever a policy's own limits
// are: 64 MB of prompts, in at most 6.5 MB of memory.
const routedBlocks = 1 << 16

// UsesPrefix implements PrefixUser.
func (*routed) UsesPrefix() bool { return true }

// Members implements MemberObserver.
func (p *routed) Members(replicas []*decider.Replica) {
	member := make(map[*decider.Replica]bool, len(replicas))
	for _, r := range replicas {
		member[r] = true
	}
	for _, r := range p.list {
		if !member[r] {
			p.model.Remove(p.of(r))
		}
	}
	for _, r := range replicas {
		if c := p.of(r); c != nil {
			c.SetCapacity(p.capacity)
		} else {
			p.model.Add(r.Slot(), p.capacity)
		}
	}
	p.list = slices.Clone(replicas)
}

// of is the record of what a member was sent.
func (p *routed) of(r *decider.Replica) *kvcache.Cache { return p.model.At(r.Slot()) }

// resize makes n blocks the capacity, and forgets those that no longer fit.
func (p *routed) resize(n int) {
	if n == p.capacity {
		return
	}
	p.capacity = n
	for _, r := range p.list {
		p.of(r).SetCapacity(n)
	}
}

// matchPrefix finds how much of the request's prompt each replica was sent.
func (p *routed) matchPrefix(r *decider.Request) {
	p.depth, _ = p.model.Match(r.Blocks, p.depth)
}

// matched is how many leading blocks of that prompt a replica was sent.
func (p *routed) matched(r *decider.Replica) int32 { return p.depth[r.Slot()] }

// rate is the share of the prompt that its first blocks are.
func (p *routed) rate(r *decider.Request, v *decider.View, blocks int32) float64 {
	return float64(int(blocks)*v.BlockTokens) / float64(max(r.Input, 1))
}

// size is how many blocks r was sent that are not forgotten.
func (p *routed) size(r *decider.Replica) int { return p.of(r).Len() }

// Reserved implements Observer.
func (p *routed) Reserved(r *decider.Request, replica int) {
	p.of(p.list[replica]).Touch(r.Blocks, 0)
}

// ReservedByPeer implements PeerObserver.
func (p *routed) ReservedByPeer(r *decider.Request, replica int) { p.Reserved(r, replica) }

// FirstToken implements Observer: the replica that serves is not always the
// one that was chosen.
func (p *routed) FirstToken(r *decider.Request, replica int) {
	if c := p.of(p.list[replica]); c.Match(r.Blocks) < len(r.Blocks) {
		c.Touch(r.Blocks, 0)
	}
}

// Finished implements Observer.
func (*routed) Finished(*decider.Request, int, decider.Outcome) {}

// RestoreCache implements CacheRestorer: what the pool's caches held is what was
// sent there.
func (p *routed) RestoreCache(replica int, blocks []uint64) {
	p.of(p.list[replica]).Restore(blocks, 0)
}

// penalty is added to the cost of candidates that come after all others.
const penalty = 1e12

var (
	_ decider.PrefixUser     = (*routed)(nil)
	_ decider.MemberObserver = (*routed)(nil)
	_ decider.Observer       = (*routed)(nil)
	_ decider.PeerObserver   = (*routed)(nil)
	_ decider.CacheRestorer  = (*routed)(nil)
)
