package replay

import (
	"container/heap"
	"time"

	"pointsman/decider"
)

// event is something that happens, or is reported to an agent, at its time.
type event struct {
	at      time.Duration
	order   uint64 // of equal times, the event pushed first comes first
	kind    eventKind
	replica int
	flight  *flight
	agent   *agent // that gets the report; nil means the one that decided
	shared  *decider.Event
	from    string // the agent that reported it
}

type eventKind uint8

const (
	eventConnected  eventKind = iota // a proxy report, as are the next two
	eventFirstToken                  // the proxy has sent the first byte
	eventFinished
	eventPoll     // read an engine's count of first tokens
	eventScrape   // read an engine's gauges
	eventDispatch // dispatch held requests by the clock
	eventSweep    // expire reservations
	eventDeath    // a replica dies
	eventHealth   // the proxy has noticed
	eventChange   // Events.Changes[replica] happens
	eventShared   // what another agent has reported
	eventSilent   // agents notice a partition
	eventHealed   // and its end
	eventMoved    // a KV cache has arrived at its decode replica
)

// eventQueue holds future events. Its zero value is empty.
type eventQueue struct {
	heap   eventHeap
	pushed uint64
}

// next is the time of the next event.
func (q *eventQueue) next() time.Duration {
	if len(q.heap) == 0 {
		return never
	}
	return q.heap[0].at
}

func (q *eventQueue) push(e event) {
	q.pushed++
	e.order = q.pushed
	heap.Push(&q.heap, &e)
}

func (q *eventQueue) pop() event { return *heap.Pop(&q.heap).(*event) }

// eventHeap implements heap.Interface with the next event on top.
type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

var _ heap.Interface = (*eventHeap)(nil)
