package cluster

import (
	"sync"

	"pointsman/decider"
)

// Bounds of the events that wait to be published.
const (
	mostEvents = 1 << 17
	mostBlocks = 2 << 20 // 16 MiB
	keptEvents = 1 << 12 // for the next ones
	keptBlocks = 1 << 17
)

// collector keeps the decider's events until they are published. Events beyond its bounds
// are lost, and the others ask for a list.
type collector struct {
	wake chan struct{} // there are events

	mu     sync.Mutex
	filled journaled
	spare  journaled
	lost   bool
	losses uint64
}

type journaled struct {
	events []decider.Event
	blocks []uint64
}

// Add implements decider.Journal.
func (c *collector) Add(e *decider.Event) {
	c.mu.Lock()
	q := &c.filled
	first := len(q.events) == 0
	if len(q.events) >= mostEvents || len(q.blocks)+len(e.Request.Blocks) > mostBlocks {
		c.lost = true
		c.losses++
		c.mu.Unlock()
		return
	}
	q.events = append(q.events, *e)
	if len(e.Request.Blocks) > 0 {
		from := len(q.blocks)
		q.blocks = append(q.blocks, e.Request.Blocks...)
		q.events[len(q.events)-1].Request.Blocks = q.blocks[from:len(q.blocks):len(q.blocks)]
	}
	c.mu.Unlock()
	if first {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// take returns the events since the last call, and whether some were lost. They are valid
// until the next call.
func (c *collector) take() (events []decider.Event, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filled, c.spare = c.spare, c.filled
	q := &c.filled
	if cap(q.events) > keptEvents {
		q.events = nil
	}
	if cap(q.blocks) > keptBlocks {
		q.blocks = nil
	}
	q.events, q.blocks = q.events[:0], q.blocks[:0]
	lost, c.lost = c.lost, false
	return c.spare.events, lost
}

func (c *collector) lostSoFar() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.losses
}

var _ decider.Journal = (*collector)(nil)
