package cluster

import (
	"time"

	"pointsman/cluster/wire"
)

// peer is another agent, as this one follows it. It lives under the node's lock.
type peer struct {
	name    string
	epoch   uint64
	key     wire.Key
	decoder wire.Decoder
	next    uint64        // the number of its next batch
	seen    time.Duration // when it last sent anything
	lag     lag
	silent  bool

	// wants is set while events of it may be missing, until it has listed all its
	// reservations.
	wants   bool
	whole   bool // nothing was missed since the list began,
	intact  bool // or since the part of one pool did
	askAt   time.Duration
	askWait time.Duration
	listed  time.Duration // when its last list ended
	absent  bool          // its caches may have changed while it was silent

	messages, bytes, events, gaps, repeated, lists, differed uint64
}

// Asking for lists.
const (
	askSoon  = 250 * time.Millisecond
	askLate  = 4 * time.Second
	askApart = 5 * time.Second // where what is known differs, but nothing was missed
)

// reborn starts following another life of the agent.
func (p *peer) reborn(epoch uint64, key wire.Key) {
	p.epoch, p.key = epoch, key
	p.decoder, p.next, p.lag = wire.Decoder{}, 1, lag{}
	p.whole, p.intact = false, false
	p.want(0)
}

// want notes that a list of the agent's reservations is needed, from at on.
func (p *peer) want(at time.Duration) {
	if !p.wants {
		p.wants, p.askAt, p.askWait = true, at, askSoon
	}
}

// missed notes that a batch of the agent is missing.
func (p *peer) missed() {
	p.decoder.Missed()
	p.whole, p.intact = false, false
	p.want(0)
}

// asked is a request that a node has to send to a peer.
type asked struct {
	peer  string
	epoch uint64
	wants byte
}

// watchPeers returns the requests to send, and marks peers that no longer send anything as
// gone.
func (n *Node) watchPeers(now time.Duration) (list []asked) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, p := range n.peers {
		switch gone := now - p.seen; {
		case gone > forgottenAfter:
			n.Decider.Forget(name)
			delete(n.peers, name)
		case gone > silentAfter:
			if !p.silent {
				p.silent, p.absent = true, true
				n.Decider.Silent(name)
				n.Log.Warn("an agent of the cluster is silent", "agent", name)
			}
			p.want(0)
		case p.wants && now >= p.askAt:
			p.askAt, p.askWait = now+p.askWait, min(2*p.askWait, askLate)
			list = append(list, asked{name, p.epoch, wantsList})
		}
	}
	return list
}

// lag estimates the delay of an agent's messages: how much later one comes, by its own
// stamp, than the fastest of the last minutes. The clocks need not agree. It lives under
// the node's lock.
type lag struct {
	least, before time.Duration // the smallest difference of this window, and the last
	since         time.Duration // when the window began
	some          bool
	now           time.Duration // of the last message
}

// lagWindow is how long a smallest difference counts, for clocks that drift.
const lagWindow = time.Minute

func (l *lag) note(stamp, now time.Duration) {
	d := now - stamp
	if !l.some {
		*l = lag{least: d, before: d, since: now, some: true}
	}
	if now-l.since > lagWindow {
		l.before, l.least, l.since = l.least, d, now
	}
	l.least = min(l.least, d)
	l.now = d - min(l.least, l.before)
}
