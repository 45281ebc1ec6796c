package cluster

import (
	"encoding/binary"

	"pointsman/cluster/wire"
)

// The bits of a request to other agents.
const (
	wantsList     = 1 << iota // all reservations of the agent
	wantsSnapshot             // and all it knows about caches, sessions and speeds
)

// ask asks an agent, or all if the name is empty. epoch is the agent's.
func (n *Node) ask(agent string, epoch uint64, wants byte) {
	body := append([]byte{wants}, agent...)
	body = binary.BigEndian.AppendUint64(body, epoch)
	p := &n.publishing
	p.mu.Lock()
	defer p.mu.Unlock()
	subject := n.subject()
	if agent != "" {
		subject = n.direct(agent)
	}
	n.send(subject, wire.KindAsk, body)
}

// askAll asks all agents for their reservations.
func (n *Node) askAll() { n.ask("", 0, wantsList) }

// asked notes what another agent asks for. The caller holds the lock.
func (n *Node) asked(p *peer, body []byte) {
	if len(body) < 9 {
		n.counts.malformed++
		return
	}
	wants, name, epoch := body[0], string(body[1:len(body)-8]), binary.BigEndian.Uint64(body[len(body)-8:])
	if name != "" && (name != n.Agent || epoch != n.epoch) {
		return // an earlier life of this agent
	}
	if wants&wantsList != 0 {
		n.wantList.Store(true)
	}
	if wants&wantsSnapshot != 0 {
		n.join.give(n, p.name)
	}
}
