package decider

// routed remembers which replicas were sent which prefixes, for policies that
// follow no further than that. A policy that embeds it is a PrefixUser, a
// MemberObserver and an Observer. What a replica was sent is forgotten, least
// recently sent first, beyond capacity blocks.
type routed struct {
	prefixes
	capacity int
	depth    []int32 // by slot, of the request last looked at
	list     []*Replica
}

// routedBlocks bounds what is remembered of a replica, whatever a policy's own
// limits are: 64 MB of prompts, in at most 6.5 MB of memory.
const routedBlocks = 1 << 16

// UsesPrefix implements PrefixUser.
func (*routed) UsesPrefix() bool { return true }

// Members implements MemberObserver.
func (p *routed) Members(replicas []*Replica) {
	p.list = replicas
	p.members(replicas, func(*Replica) int { return p.capacity })
}

// resize makes n blocks the capacity. What does not fit any more is forgotten.
func (p *routed) resize(n int) {
	if n == p.capacity {
		return
	}
	p.capacity = n
	for _, m := range p.images {
		if m != nil {
			m.capacity = n
			m.evict()
		}
	}
}

// look finds out how much of the request's prompt each replica was sent.
func (p *routed) look(r *Request) { p.depth, _ = p.match(r.Blocks, p.depth) }

// rate is the share of the prompt that its first blocks are.
func (p *routed) rate(r *Request, v *View, blocks int32) float64 {
	return float64(int(blocks)*v.BlockTokens) / float64(max(r.Input, 1))
}

// size is how many blocks r was sent and not forgotten.
func (p *routed) size(r *Replica) int { return p.of(r).held }

// Reserved implements Observer.
func (p *routed) Reserved(r *Request, replica int) {
	p.of(p.list[replica]).touch(r.Blocks, 0)
}

// FirstToken implements Observer: the replica that serves is not always the
// one that was chosen.
func (p *routed) FirstToken(r *Request, replica int) {
	if m := p.of(p.list[replica]); m.match(r.Blocks) < len(r.Blocks) {
		m.touch(r.Blocks, 0)
	}
}

// Finished implements Observer.
func (*routed) Finished(*Request, int, Outcome) {}

// loads are the fewest and the most requests in flight of the candidates.
func (v *View) loads() (least, most int) {
	least = v.Replicas[v.Candidates[0]].inFlight
	for _, i := range v.Candidates {
		n := v.Replicas[i].inFlight
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// behind is added to the cost of candidates that are to come after all others.
const behind = 1e12

var (
	_ PrefixUser     = (*routed)(nil)
	_ MemberObserver = (*routed)(nil)
	_ Observer       = (*routed)(nil)
)
