package decider

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Reservations name their blocks by their position among the blocks of their replica, as
// runs up or down that list: prompts are long, and their blocks are in the list already.
const (
	runKeys = iota // keys, which follow
	runUp          // from a place on
	runDown        // from a place back
	runKinds
)

// reservations writes the reservations of this agent, in the order of their leases.
func (x *snapshot) reservations() {
	p := x.pool
	var all []reservation
	var place map[uint64]int
	list := &p.account.reservations
	for from, more := 1, true; more; {
		p.mu.Lock()
		blocks := 0
		for n := 0; n < reservationsAtOnce && blocks < blocksAtOnce && from < len(list.slots); from++ {
			v := list.at(int32(from))
			if i, used := list.byID[v.id]; !used || int(i) != from || v.from != "" || v.leg {
				continue
			}
			all = append(all, *v)
			all[len(all)-1].request.Blocks = slices.Clone(v.request.Blocks)
			n, blocks = n+1, blocks+len(v.request.Blocks)
		}
		more = from < len(list.slots)
		p.mu.Unlock()
	}
	now := p.clock()
	all = slices.DeleteFunc(all, func(v reservation) bool { _, ok := x.index[v.replica]; return !ok })
	slices.SortStableFunc(all, func(a, b reservation) int {
		return cmp.Or(cmp.Compare(x.index[a.replica], x.index[b.replica]), cmp.Compare(a.lease, b.lease))
	})
	last := -1
	for i := range all {
		v := &all[i]
		at := x.index[v.replica]
		if at != last {
			last, place = at, make(map[uint64]int, len(x.keys[at]))
			for k, key := range x.keys[at] {
				place[key] = k
			}
		}
		x.reservation(v, at, place, now)
		if len(x.e.b) > 1<<20 || i == len(all)-1 {
			x.part(partReservations)
		}
	}
}

// reservation encodes v, on the replica at that place.
func (x *snapshot) reservation(v *reservation, at int, place map[uint64]int, now time.Duration) {
	e, r := &x.e, &v.request
	e.b = append(e.b, v.id[:]...)
	e.count(at)
	decided, ok := x.index[v.decided]
	if !ok {
		decided = -1
	}
	e.count(decided + 1)
	e.flags(v.started, v.prefill.queued, v.prefill.reported, v.prefill.measured, r.HasSession, r.Stream, r.Cut, r.Short)
	e.age(now - v.at)
	e.age(now + x.pool.lease - v.lease) // since it was last reported
	e.age(v.waited)
	e.count(min(v.tokens, 2*mostContext))
	e.count(min(v.input, mostContext))
	e.count(min(v.uncached, mostContext))
	e.number(v.prefill.backlog)
	e.signed(min(r.Output, mostContext))
	e.count(min(r.TextBytes, math.MaxInt32))
	e.count(min(r.ExactTokens, mostContext))
	e.signed(max(-math.MaxInt32, min(r.Priority, math.MaxInt32)))
	e.count(r.Band)
	e.fixed(r.Tenant)
	e.fixed(r.Origin)
	e.fixed(r.Session)
	e.name(r.Model)
	e.flags(r.LoRA != "")
	x.blocks(r.Blocks, x.keys[at], place)
}

// blocks encodes the blocks of a request by the keys of its replica, which are at
// these places.
func (x *snapshot) blocks(blocks, keys []uint64, place map[uint64]int) {
	x.e.count(len(blocks))
	for len(blocks) > 0 {
		at, known := place[blocks[0]]
		n := 1
		switch {
		case !known:
			for n < len(blocks) {
				if _, known := place[blocks[n]]; known {
					break
				}
				n++
			}
			x.e.count(n*runKinds + runKeys)
			for _, key := range blocks[:n] {
				x.e.fixed(key)
			}
		case len(blocks) > 1 && at > 0 && keys[at-1] == blocks[1]:
			for n < len(blocks) && n <= at && keys[at-n] == blocks[n] {
				n++
			}
			x.e.count(n*runKinds + runDown)
			x.e.count(at)
		default:
			for n < len(blocks) && at+n < len(keys) && keys[at+n] == blocks[n] {
				n++
			}
			x.e.count(n*runKinds + runUp)
			x.e.count(at)
		}
		blocks = blocks[n:]
	}
}

// runs decodes what blocks encoded. All reservations together may have budget blocks.
func (d *decoder) runs(keys []uint64, budget *int) (blocks []uint64) {
	left := d.count(*budget)
	*budget -= left
	for left > 0 && !d.bad {
		head := d.count(math.MaxInt32)
		n := head / runKinds
		if n == 0 || n > left {
			d.fail()
			break
		}
		left -= n
		switch kind := head % runKinds; kind {
		case runKeys:
			if n > len(d.b)/8 {
				d.fail()
				break
			}
			for range n {
				blocks = append(blocks, d.fixed())
			}
		case runUp:
			if at := d.count(len(keys)); !d.bad && n <= len(keys)-at {
				blocks = append(blocks, keys[at:at+n]...)
			} else {
				d.fail()
			}
		case runDown:
			if at := d.count(len(keys)); !d.bad && at < len(keys) && n <= at+1 {
				for k := range n {
					blocks = append(blocks, keys[at-k])
				}
			} else {
				d.fail()
			}
		}
	}
	if d.bad {
		return nil
	}
	return blocks
}
