package cluster

import (
	"errors"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
)

// receive handles a message from the bus.
func (n *Node) receive(message []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.received++
	n.counts.receivedBytes += uint64(len(message))
	head, at, err := wire.ReadHead(message)
	switch {
	case errors.Is(err, wire.ErrVersion):
		n.counts.otherVersion++
		return
	case err != nil:
		n.counts.malformed++
		return
	case head.From == n.Agent && head.Epoch == n.epoch:
		return
	}
	now := n.Clock()
	p := n.peers[head.From]
	var key wire.Key
	if p != nil && p.epoch == head.Epoch {
		key = p.key
	} else {
		key = n.Secret.Key(head.From, head.Epoch)
	}
	body, err := key.Open(n.body[:0], message, at)
	if err != nil {
		n.counts.refused++
		n.warn(now, "a message that was not sealed with the cluster's secret is refused", head.From)
		return
	}
	n.body = body
	switch {
	case head.From == n.Agent:
		n.counts.namesake++
		n.warn(now, "another agent of the cluster has the name of this one: set cluster.agent", head.From)
		return
	case p == nil && len(n.peers) >= MostPeers:
		n.counts.strangers++
		return
	case p == nil:
		p = &peer{name: head.From}
		p.reborn(head.Epoch, key)
		n.peers[head.From] = p
		n.Log.Info("an agent of the cluster was found", "agent", head.From)
	case p.epoch > head.Epoch && now-p.seen < silentAfter:
		n.counts.stale++ // of an earlier life
		return
	case p.epoch != head.Epoch:
		p.reborn(head.Epoch, key)
	}
	p.messages++
	p.bytes += uint64(len(message))
	if p.silent {
		p.silent = false
		n.Log.Info("an agent of the cluster is back", "agent", head.From)
	}
	p.seen = now
	switch head.Kind {
	case wire.KindBatch:
		n.batch(p, body, now)
	case wire.KindAsk:
		n.asked(p, body)
	case wire.KindUsage:
		n.receiveUsage(p, body)
	case wire.KindPart:
		n.join.part(n, p, body, now)
	}
}

// warn logs a problem for the operator, once a minute at most.
func (n *Node) warn(now time.Duration, what, agent string) {
	if n.warned == 0 || now-n.warned > time.Minute {
		n.warned = max(now, 1)
		n.Log.Warn(what, "agent", agent)
	}
}

// batch applies the events of a batch.
func (n *Node) batch(p *peer, body []byte, now time.Duration) {
	b, err := p.decoder.Begin(body)
	if err != nil {
		n.counts.malformed++
		return
	}
	p.lag.note(b.Stamp, now)
	switch {
	case b.Number < p.next:
		p.repeated++
		return
	case b.Number > p.next:
		if p.next > 1 {
			p.gaps++
		}
		p.missed()
	}
	p.next = b.Number + 1
	p.decoder.Follow(b)
	for {
		e, err := p.decoder.Next()
		if err != nil {
			n.counts.malformed++
			p.missed()
			return
		}
		if e == nil {
			break
		}
		n.apply(p, e, now)
	}
	if p.decoder.Broken() {
		p.want(0)
	}
}

// apply applies an event.
func (n *Node) apply(p *peer, e *decider.Event, now time.Duration) {
	n.counts.events++
	p.events++
	switch e.Kind {
	case decider.EventListBegins:
		p.intact = true
		if e.Pool == "" {
			p.whole = true
			return
		}
	case decider.EventListEnds:
		if e.Pool == "" {
			n.listed(p, now)
			return
		}
		if !p.intact {
			return // some of it is missing
		}
	}
	e.Late = p.lag.now
	switch n.Decider.ApplyEvent(p.name, e) {
	case decider.UnknownPool:
		n.counts.unknownPool++
	case decider.UnknownReplica:
		n.counts.unknownServer++
	case decider.OutOfBounds:
		n.counts.outOfBounds++
	case decider.Differs:
		if !p.wants {
			p.differed++
			p.want(max(now, p.listed+askApart))
		}
	}
}

// listed notes the end of a list.
func (n *Node) listed(p *peer, now time.Duration) {
	if !p.whole {
		return
	}
	p.whole = false
	p.lists++
	p.listed, p.wants = now, false
	n.join.listed(n, p)
}
