package cluster

import (
	"time"

	"pointsman/cluster/wire"
)

// usageEvery is how often agents publish what their clients have used.
const usageEvery = 200 * time.Millisecond

// publishUsage publishes what the clients of this agent have used, where that changed.
func (n *Node) publishUsage(now time.Duration) {
	b, p := n.Decider.Budgets, &n.publishing
	if !b.On() || now-p.usageAt < usageEvery {
		return
	}
	p.usageAt = now
	p.reports = b.Reports(p.reports[:0], wire.MostUsage)
	if len(p.reports) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body = wire.AppendUsage(p.body[:0], p.reports)
	n.send(n.subject(), wire.KindUsage, p.body)
}

// receiveUsage applies what the clients of another agent have used. The caller holds the
// lock.
func (n *Node) receiveUsage(p *peer, body []byte) {
	b := n.Decider.Budgets
	if !b.On() {
		return
	}
	var err error
	if n.reports, err = wire.ReadUsage(n.reports[:0], body); err != nil {
		n.counts.malformed++
		return
	}
	b.Receive(p.name, n.reports)
}
