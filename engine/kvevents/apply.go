package kvevents

import (
	"math"

	"pointsman/decider/kvcache"
)

// on takes one event in.
func (r *blockRank) on(e *blockEvent) {
	m, t, a := r.of, &r.table, &r.accounts[r.into]
	if e.kind == eventCleared {
		r.empty(r.into)
		if r.into == present {
			r.close()
		}
		a.exact = true
		return
	}
	if !e.onGPU() || e.group != 0 {
		return
	}
	if e.kind == eventRemoved {
		for _, h := range e.hashes {
			if s := t.find(h); s != nil && s.count[r.into] > 0 && t.set(s, r.into, s.count[r.into]-1) {
				r.removed(s.key)
			}
		}
		return
	}
	n := uint64(len(e.hashes))
	if e.size != m.blockTokens || e.numbered && e.lora == nil || len(e.tokens) < len(e.hashes)*e.size {
		m.view.Strange += n
		return
	}
	if e.hasParent && !a.exact && !e.window {
		r.prove(e.parent)
	}
	for i, h := range e.hashes {
		s := t.at(h)
		if s.state&slotNamed == 0 {
			r.name(s, e, i)
		}
		if c := s.count[r.into]; c < math.MaxUint16 && t.set(s, r.into, c+1) {
			r.stored(s.key)
		}
	}
}

// name notes what is in block i of an event.
func (r *blockRank) name(s *tableSlot, e *blockEvent, i int) {
	var single, rest []byte
	if i < len(e.extra) {
		single, rest = otherKeys(e.extra[i], e.lora)
	}
	first := i == 0 && !e.hasParent
	if first && single != nil {
		rest = nil // the salt, which the seed has
	}
	content := kvcache.Content(e.tokens[i*e.size : (i+1)*e.size])
	if rest != nil {
		content = kvcache.Mix(content, rest)
	}
	switch {
	case first:
		s.key = kvcache.Key(r.of.pool.PromptSeed(e.lora, single), content)
		s.state |= slotNamed | slotFirst | slotPlaced
	case i == 0:
		r.table.name(s, e.parent, content)
	default:
		r.table.name(s, e.hashes[i-1], content)
	}
	if s.state&slotPlaced != 0 {
		if s.count[present] > 0 {
			r.stored(s.key)
		}
		r.table.adopt(s, r.stored)
	}
}

// prove notes that a block is there, and all before it: one was stored after
// it, and an engine holds all of a prompt while it computes the rest.
func (r *blockRank) prove(h uint64) {
	for {
		s := r.table.at(h)
		if s.count[r.into] > 0 {
			return
		}
		if r.table.set(s, r.into, 1) {
			r.stored(s.key)
		}
		if s.state&(slotNamed|slotFirst) != slotNamed {
			return
		}
		h = s.parent
	}
}
