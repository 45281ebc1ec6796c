package queue

import (
	"cmp"
	"slices"
)

// ordered is a list sorted by key, then by sequence number. Both ends are cheap
// to change; a change in between moves at most half of the list.
//
// It is neither a heap nor a tree: the owner walks the list in order, which a
// heap cannot do, and trees allocate a node for each insertion.
type ordered[T any] struct {
	base []entry[T] // the memory
	list []entry[T] // the part of it in use
}

type entry[T any] struct {
	key   float64
	seq   uint64
	value T
}

func (o *ordered[T]) len() int { return len(o.list) }

// at is the value at index i.
func (o *ordered[T]) at(i int) T { return o.list[i].value }

// search is the index where the entry is, or would be.
func (o *ordered[T]) search(key float64, seq uint64) int {
	i, _ := slices.BinarySearchFunc(o.list, entry[T]{key: key, seq: seq}, func(a, b entry[T]) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq))
	})
	return i
}

func (o *ordered[T]) insert(key float64, seq uint64, v T) {
	if len(o.list) == cap(o.list) && len(o.base) > 0 && 2*len(o.list) <= len(o.base) {
		// At least half is free, in front: move back there instead of growing.
		n := copy(o.base, o.list)
		clear(o.base[n:])
		o.list = o.base[:n]
	}
	grown := len(o.list) == cap(o.list)
	o.list = slices.Insert(o.list, o.search(key, seq), entry[T]{key, seq, v})
	if grown {
		o.base = o.list[:cap(o.list)]
	}
}

// remove takes the entry out, if it is there.
func (o *ordered[T]) remove(key float64, seq uint64) {
	i := o.search(key, seq)
	if i == len(o.list) || o.list[i].seq != seq {
		return
	}
	if i > len(o.list)/2 {
		o.list = slices.Delete(o.list, i, i+1)
		return
	}
	copy(o.list[1:i+1], o.list[:i])
	o.list[0] = entry[T]{}
	o.list = o.list[1:]
}
