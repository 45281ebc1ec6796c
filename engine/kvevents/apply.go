package kvevents

import (
	"math"

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
	if !e.onGPU() || e.group != 0 {
		return
	}
	if e.kind == eventRemoved {
		for _, h := range e.hashes {
			if s := t.find(h); s != nil && s.count[r.target] > 0 && t.setCount(s, r.target, s.count[r.target]-1) {
				r.recordRemoved(s.key)
			}
		}
		return
	}
	n := uint64(len(e.hashes))
	if e.size != x.blockTokens || e.loraByID && e.lora == nil || len(e.tokens) < len(e.hashes)*e.size {
		x.status.Strange += n
		return
	}
	if e.hasParent && !a.complete && !e.slidingWindow {
		r.infer(e.parent)
	}
	for i, h := range e.hashes {
		s := t.findOrAdd(h)
		if s.state&slotIdentified == 0 {
			r.identify(s, e, i)
		}
		if c := s.count[r.target]; c < math.MaxUint16 && t.setCount(s, r.target, c+1) {
			r.recordStored(s.key)
		}
	}
}

// identify records the content of block i of an event, and its key if the block
// before it has one.
func (r *rankIndex) identify(s *slot, e *event, i int) {
	var single, rest []byte
	if i < len(e.extra) {
		single, rest = splitExtraKeys(e.extra[i], e.lora)
	}
	first := i == 0 && !e.hasParent
	if first && single != nil {
		rest = nil // the salt, which is part of the seed
	}
	content := kvcache.Content(e.tokens[i*e.size : (i+1)*e.size])
	if rest != nil {
		content = kvcache.Mix(content, rest)
	}
	switch {
	case first:
		s.key = kvcache.Key(prompt.Seed(r.index.pool.Keyspace(), e.lora, single), content)
		s.state |= slotIdentified | slotFirst | slotKeyed
	case i == 0:
		r.table.setContent(s, e.parent, content)
	default:
		r.table.setContent(s, e.hashes[i-1], content)
	}
	if s.state&slotKeyed != 0 {
		if s.count[live] > 0 {
			r.recordStored(s.key)
		}
		r.table.keyChildren(s, r.recordStored)
	}
}

// infer adds a block and all blocks before it to the target snapshot. The engine
// has stored a block after it, and it holds all of a prompt while it computes the
// rest.
func (r *rankIndex) infer(h uint64) {
	for {
		s := r.table.findOrAdd(h)
		if s.count[r.target] > 0 {
			return
		}
		if r.table.setCount(s, r.target, 1) {
			r.recordStored(s.key)
		}
		if s.state&(slotIdentified|slotFirst) != slotIdentified {
			return
		}
		h = s.parent
	}
}
