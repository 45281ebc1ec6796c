package cluster

import (
	"encoding/hex"
	"sync"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
	"pointsman/decider/budget"
)

// publishing is the state of what a node publishes.
type publishing struct {
	mu      sync.Mutex
	encoder wire.Encoder
	key     wire.Key
	number  uint64 // of the last batch
	body    []byte // scratch
	message []byte

	reports []budget.Report // scratch of the goroutine of Run
	usageAt time.Duration

	at, listed, digested time.Duration // when there was one; by the goroutine of Run

	messages, bytes, events, lists, failed uint64
}

// subjectName is a name as part of a subject, in which some characters have a
// meaning.
func subjectName(name string) string { return hex.EncodeToString([]byte(name)) }

// flush publishes the waiting events, or a heartbeat.
func (n *Node) flush(beat bool) {
	p := &n.publishing
	p.mu.Lock()
	defer p.mu.Unlock()
	events, lost := n.journal.take()
	if lost {
		p.number++ // a gap: the others ask for a list
	}
	for i := range events {
		if !p.encoder.Add(&events[i]) {
			n.publish()
			p.encoder.Add(&events[i])
		}
	}
	p.events += uint64(len(events))
	if beat || len(events) > 0 {
		n.publish()
	}
}

// publish publishes the batch that the encoder holds. The caller holds the lock.
func (n *Node) publish() {
	p := &n.publishing
	p.number++
	p.at = n.Clock()
	p.body = p.encoder.Append(p.body[:0], p.number, p.at-n.started)
	n.send(n.subject(), wire.KindBatch, p.body)
}

// send seals and publishes a message. The caller holds the lock of publishing.
func (n *Node) send(subject string, kind wire.Kind, body []byte) {
	p := &n.publishing
	bus := n.bus.Load()
	if n.leaving.Load() || bus == nil {
		return
	}
	p.message = p.key.Seal(p.message[:0], wire.Head{Kind: kind, Epoch: n.epoch, From: n.Agent}, body)
	if err := (*bus).Publish(subject, p.message); err != nil {
		p.failed++
		return
	}
	p.messages++
	p.bytes += uint64(len(p.message))
}

// list publishes all reservations of this agent, for agents that missed some.
func (n *Node) list() {
	n.flush(false)
	p := &n.publishing
	p.mu.Lock()
	p.encoder.Forget()
	p.lists++
	p.listed = n.Clock()
	p.mu.Unlock()
	n.journal.Add(&decider.Event{Kind: decider.EventListBegins})
	n.Decider.PublishAll()
	n.journal.Add(&decider.Event{Kind: decider.EventListEnds})
	n.flush(false)
}
