package queue

import "time"

// Entry is what the queue knows of a request.
type Entry struct {
	ID       [16]byte
	Band     int           // index of its band
	Tenant   uint64        // hash of its tenant; 0 = unknown
	Deadline time.Duration // of its first token, by the owner's clock; 0 = none
	Bytes    int           // of its body
	Prefill  float64       // prompt tokens that no replica has cached
	Work     float64       // these and the output tokens: what its tenant is charged
}

// Item is an Entry that waits, with its owner's value.
type Item[T any] struct {
	Entry
	Value T
	At    time.Duration // when it was added first

	tenant    *Tenant[T]
	seq       uint64
	key       float64 // its place among its tenant's items
	due       float64 // seconds; then it is refused
	late      bool    // due is derived from its deadline, not from its band's TTL
	postponed float64 // seconds, in due
}

// Due is when the item is to be refused, in seconds of the owner's clock.
func (it *Item[T]) Due() float64 { return it.due }

// Late reports whether an item that is due misses its deadline. Otherwise it
// has waited for its band's TTL.
func (it *Item[T]) Late() bool { return it.late }

// Aged is the key of the order ByWork: prefill work, less a credit for the time that the
// item has waited. speed is the prefill speed of a replica in tokens/s.
func (it *Item[T]) Aged(work, speed float64, now time.Duration) float64 {
	return work - ageing*speed*(now-it.At).Seconds()
}

// ageing is that credit, as a share of the tokens that a replica computes during the wait.
const ageing = 0.1
