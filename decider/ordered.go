package decider

import (
	"cmp"
	"maps"
	"slices"
)

// ordered is a list in the order of its keys, then of their sequence numbers.
// Both ends are cheap to change; what lies between moves by half at most.
type ordered[T any] struct {
	base []entry[T] // the memory
	list []entry[T] // a part of it
}

type entry[T any] struct {
	key   float64
	seq   uint64
	value T
}

func (o *ordered[T]) len() int { return len(o.list) }

// first is the value that comes first; there must be one.
func (o *ordered[T]) first() *entry[T] { return &o.list[0] }

// place is where the entry is, or would be.
func (o *ordered[T]) place(key float64, seq uint64) int {
	i, _ := slices.BinarySearchFunc(o.list, entry[T]{key: key, seq: seq}, func(a, b entry[T]) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq))
	})
	return i
}

func (o *ordered[T]) insert(key float64, seq uint64, v T) {
	if len(o.list) == cap(o.list) && len(o.list) < len(o.base)/2 {
		// The front half is free: go back there instead of growing.
		n := copy(o.base, o.list)
		clear(o.base[n:])
		o.list = o.base[:n]
	}
	grown := len(o.list) == cap(o.list)
	o.list = slices.Insert(o.list, o.place(key, seq), entry[T]{key, seq, v})
	if grown {
		o.base = o.list[:cap(o.list)]
	}
}

// remove takes the entry out, if it is there.
func (o *ordered[T]) remove(key float64, seq uint64) {
	i := o.place(key, seq)
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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
