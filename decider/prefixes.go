package decider

import "math/bits"

// prefixes tells how much of a prompt each replica of a pool has: an image of
// each, found by the replica's slot, and one index for every 64 of them.
type prefixes struct {
	images  []*image // by slot; nil = no replica
	indexes []*blockIndex
}

const groupSize = 64

// members makes the images those of replicas, each of the capacity, in blocks,
// that the function tells.
func (x *prefixes) members(replicas []*Replica, capacity func(*Replica) int) {
	slots := 0
	for _, r := range replicas {
		slots = max(slots, r.slot+1)
	}
	keep := make([]*image, slots)
	for _, r := range replicas {
		if r.slot < len(x.images) {
			if m := x.images[r.slot]; m != nil && m.of == r {
				keep[r.slot] = m
				m.capacity = capacity(r)
				m.evict()
			}
		}
	}
	for s, m := range x.images {
		if m != nil && (s >= slots || keep[s] != m) {
			m.close()
		}
	}
	for len(x.indexes)*groupSize < slots {
		x.indexes = append(x.indexes, new(blockIndex))
	}
	for _, r := range replicas {
		if keep[r.slot] == nil {
			keep[r.slot] = newImage(r, x.indexes[r.slot/groupSize], 1<<(r.slot%groupSize), capacity(r))
		}
	}
	x.images = keep
}

// of is the image of a replica, nil for one that is no member any more.
func (x *prefixes) of(r *Replica) *image {
	if r.slot >= len(x.images) || x.images[r.slot] == nil || x.images[r.slot].of != r {
		return nil
	}
	return x.images[r.slot]
}

// match puts into depth, by slot, how many of the leading blocks each replica
// has, and returns the most.
func (x *prefixes) match(blocks []uint64, depth []int32) (_ []int32, best int32) {
	if cap(depth) < len(x.images) {
		depth = make([]int32, len(x.images))
	}
	depth = depth[:len(x.images)]
	clear(depth)
	for g, index := range x.indexes {
		live, d := ^uint64(0), 0
		for ; d < len(blocks); d++ {
			slot := index.find(blocks[d])
			if slot == nil {
				break
			}
			still := live & slot.mask
			if d > 0 {
				note(depth, g, live&^still, d)
			}
			if live = still; live == 0 {
				break
			}
		}
		if d > 0 {
			note(depth, g, live, d)
			best = max(best, int32(d))
		}
	}
	return depth, best
}

// note puts d into depth for the replicas of live in group g.
func note(depth []int32, g int, live uint64, d int) {
	for ; live != 0; live &= live - 1 {
		depth[g*groupSize+bits.TrailingZeros64(live)] = int32(d)
	}
}

// heat is how often a block was asked for of late, all replicas together.
func (x *prefixes) heat(key uint64, now uint32) float64 {
	sum := float32(0)
	for _, index := range x.indexes {
		if slot := index.find(key); slot != nil {
			sum += slot.decayed(now)
		}
	}
	return float64(sum)
}
