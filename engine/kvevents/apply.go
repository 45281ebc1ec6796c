package kvevents

import (
	"pointsman/decider/kvcache"
	"pointsman/prompt"
)

// applyEvent applies one event to the target snapshot.
func (r *rankIndex) applyEvent(e *event) {
	x, t, a := r.index, &r.table, &r.snapshots[r.target]
	if e.kind == eventCleared {
		r.clearSnapshot(r.target)
		if r.target == live {
			r.closeConfirmed()
		}
		a.complete = true
		return
	}
	tier, ok := e.tier()
	if !ok || !r.follows(e, tier) {
		return
	}
	if e.kind == eventRemoved {
		if tier != kvcache.GPU {
			r.removesSlow = true
			e.splitHashes(r.chunk)
		}
		for _, h := range e.hashes {
			if s := t.find(h); s != nil && s.held[r.target]&bit(tier) != 0 && t.set(s, r.target, tier, false) {
				r.recordRemoved(s.key, tier)
			}
		}
		return
	}
	n := uint64(len(e.hashes))
	if tier != kvcache.GPU && len(e.tokens) == 0 {
		// An engine may copy blocks without repeating their contents.
		for _, h := range e.hashes {
			r.store(t.findOrAdd(h), tier)
		}
		return
	}
	if tier != kvcache.GPU {
		if m := e.split(x.blockTokens); m > 1 {
			r.chunk = m
		}
	} else if e.size != x.blockTokens {
		x.adopt(e.size)
	}
	if e.size != x.blockTokens || e.loraByID && e.lora == nil || len(e.tokens) < len(e.hashes)*e.size {
		x.status.Strange += n
		return
	}
	if e.hasParent && !a.complete && !e.partial && tier == kvcache.GPU {
		r.infer(e.parent)
	}
	for i, h := range e.hashes {
		s := t.findOrAdd(h)
		if s.state&slotIdentified == 0 {
			r.identify(s, e, i)
		}
		r.store(s, tier)
	}
}

// store adds a block to the target snapshot.
func (r *rankIndex) store(s *slot, tier kvcache.Tier) {
	if tier != kvcache.GPU {
		s.state |= slotStored
	}
	if r.table.set(s, r.target, tier, true) {
		r.recordStored(s.key, tier)
	}
}

// follows reports whether e is of the group of layers that is followed: the first that
// keeps whole prompts, or else the first. The cached part of a prompt is at most what such
// a group has; blocks that a sliding window dropped do not shorten it.
func (r *rankIndex) follows(e *event, tier kvcache.Tier) bool {
	if tier == kvcache.GPU && e.kind == eventStored && (!r.grouped || r.partial && !e.partial) {
		if r.grouped && e.group != r.group {
			r.clearSnapshot(live)
			r.clearSnapshot(confirmed)
			r.table = table{}
		}
		r.group, r.partial, r.grouped = e.group, e.partial, true
	}
	return e.group == r.group || !r.grouped
}

// identify records the content of block i of an event, and its key if the block
// before it has one.
func (r *rankIndex) identify(s *slot, e *event, i int) {
	k := r.index.pool.Hashing()
	var single, rest []byte
	if i < len(e.extra) {
		single, rest = splitExtraKeys(e.extra[i], e.lora)
	}
	first := i == 0 && !e.hasParent
	if first && single != nil {
		rest = nil // the salt, which is part of the seed
	}
	content := kvcache.Content(k, e.tokens[i*e.size:(i+1)*e.size])
	if rest != nil {
		content = kvcache.Mix(k, content, rest)
	}
	switch {
	case first:
		s.key = kvcache.Key(k, prompt.Seed(k, []byte(r.index.pool.Name()), e.lora, single), content)
		s.state |= slotIdentified | slotFirst | slotKeyed
	case i == 0:
		r.table.setContent(k, s, e.parent, content)
	default:
		r.table.setContent(k, s, e.hashes[i-1], content)
	}
	if s.state&slotKeyed != 0 {
		r.recordKeyed(s)
		r.table.keyChildren(k, s, r.recordKeyed)
	}
}

// infer adds a block and all blocks before it to the target snapshot. The engine
// has stored a block after it, and it holds all of a prompt while it computes the
// rest.
func (r *rankIndex) infer(h uint64) {
	for {
		s := r.table.findOrAdd(h)
		if s.held[r.target]&bit(kvcache.GPU) != 0 {
			return
		}
		r.store(s, kvcache.GPU)
		if s.state&(slotIdentified|slotFirst) != slotIdentified {
			return
		}
		h = s.parent
	}
}
