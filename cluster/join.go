package cluster

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/cluster/wire"
)

// Joining takes a few seconds at most. After that the agent works with what it knows.
const (
	joinMost    = 4 * time.Second
	joinAlone   = 2 * time.Second // no other agent sent anything until then
	askAgain    = 500 * time.Millisecond
	partWait    = 2 * time.Second // for the next part of a snapshot
	partSize    = 256 << 10
	partsApart  = 2 * time.Millisecond
	mostTaken   = 128 << 20 // bytes of a snapshot
	givesApart  = time.Second
	rejoinApart = 30 * time.Second
)

// join fetches what the others know: a snapshot of one of them. The node's lock guards its
// fields, except for those that are safe by themselves.
type join struct {
	ready chan struct{} // closed when nobody needs to wait for it any more
	once  sync.Once

	asked   time.Duration // when all agents were last asked for their lists
	from    string        // whose snapshot is coming; "" = none
	at      time.Duration // when it was asked for, or its last part came
	id      uint64
	parts   uint64
	data    []byte
	done    bool // one was restored, or none is available
	takenAt time.Duration
	skip    map[string]bool // agents that have not answered

	giving atomic.Bool // a snapshot is being sent
	gave   atomic.Int64
}

// Ready is closed when the node knows what the others know, or has waited long enough.
func (n *Node) Ready() <-chan struct{} { return n.join.ready }

// IsReady reports whether Ready is closed.
func (n *Node) IsReady() bool {
	select {
	case <-n.join.ready:
		return true
	default:
		return false
	}
}

func (j *join) finish() { j.once.Do(func() { close(j.ready) }) }

// tick does what the clock asks for.
func (j *join) tick(n *Node, now time.Duration) {
	n.mu.Lock()
	age := now - n.started
	if age > joinMost || age > joinAlone && len(n.peers) == 0 {
		j.finish()
	}
	again := !n.IsReady() && now-j.asked >= askAgain
	if again {
		j.asked = now
	}
	if j.from != "" && now-j.at > partWait {
		j.fail(n)
	}
	ask := asked{}
	if j.from == "" {
		for name, p := range n.peers {
			fresh := !j.done && !j.skip[name]
			back := j.done && p.absent && now-j.takenAt > rejoinApart
			if !p.silent && !p.wants && (fresh || back) {
				p.absent = false
				j.from, j.at, j.data, j.parts, j.id = name, now, nil, 0, 0
				ask = asked{name, p.epoch, wantsSnapshot}
				break
			}
		}
	}
	n.mu.Unlock()
	if again {
		n.askAll()
	}
	if ask.peer != "" {
		n.ask(ask.peer, ask.epoch, ask.wants)
	}
}

// listed notes that an agent has listed its reservations.
func (*join) listed(n *Node, p *peer) {
	n.Log.Debug("an agent has listed its reservations", "agent", p.name)
}

// fail gives a snapshot up. The caller holds the lock.
func (j *join) fail(n *Node) {
	n.Log.Warn("no snapshot came from an agent of the cluster", "agent", j.from)
	if j.skip == nil {
		j.skip = map[string]bool{}
	}
	j.skip[j.from] = true
	j.from, j.data = "", nil
}

// part takes a part of a snapshot. The caller holds the lock.
func (j *join) part(n *Node, p *peer, body []byte, now time.Duration) {
	if p.name != j.from || len(body) < 17 {
		return
	}
	id, number, last := binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:]), body[16] != 0
	body = body[17:]
	switch {
	case number == 0 && j.parts == 0:
		j.id = id
	case id != j.id:
		return
	case number != j.parts || len(j.data)+len(body) > mostTaken:
		j.fail(n)
		return
	}
	j.parts++
	j.at = now
	j.data = append(j.data, body...)
	if !last {
		return
	}
	data, from := j.data, j.from
	j.data = nil
	j.done, j.takenAt = true, now
	n.start(func() {
		j.take(n, from, data)
		n.mu.Lock()
		j.from = ""
		n.counts.snapshots++
		if p := n.peers[from]; p != nil {
			p.want(0) // its reservations have changed meanwhile
		}
		n.mu.Unlock()
		j.finish()
	})
}

// take restores a snapshot.
func (j *join) take(n *Node, from string, data []byte) {
	for len(data) > 0 {
		size, k := binary.Uvarint(data)
		if k <= 0 || size > uint64(len(data)-k) {
			return
		}
		name := string(data[k : k+int(size)])
		data = data[k+int(size):]
		size, k = binary.Uvarint(data)
		if k <= 0 || size > uint64(len(data)-k) {
			return
		}
		body := data[k : k+int(size)]
		data = data[k+int(size):]
		if p := n.Decider.Pool(name); p != nil {
			if _, err := p.State().Restore(bytes.NewReader(body), from, 0); err != nil {
				n.Log.Warn("a snapshot of another agent is not whole", "agent", from, "pool", name, "error", err)
			}
		}
	}
}

// give sends a snapshot to an agent. The caller holds the lock.
func (j *join) give(n *Node, to string) {
	now := n.Clock()
	if last := j.gave.Load(); last != 0 && now-time.Duration(last) < givesApart || !j.giving.CompareAndSwap(false, true) {
		return
	}
	j.gave.Store(int64(max(now, 1)))
	n.start(func() {
		defer j.giving.Store(false)
		w := &parts{node: n, subject: n.direct(to), id: uint64(now)}
		for _, p := range n.Decider.Pools() {
			var b bytes.Buffer
			if err := p.State().Snapshot(&b); err != nil {
				continue
			}
			head := binary.AppendUvarint(nil, uint64(len(p.Name())))
			head = append(head, p.Name()...)
			_, _ = w.Write(binary.AppendUvarint(head, uint64(b.Len()))) // it never fails
			_, _ = b.WriteTo(w)
		}
		w.send(true)
	})
}

// parts is a writer that sends its data in parts.
type parts struct {
	node    *Node
	subject string
	id      uint64
	number  uint64
	data    []byte
}

// Write implements io.Writer.
func (w *parts) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), partSize-len(w.data))
		w.data = append(w.data, b[:k]...)
		b = b[k:]
		if len(w.data) == partSize {
			w.send(false)
			time.Sleep(partsApart) // the bus has other messages to carry
		}
	}
	return n, nil
}

func (w *parts) send(last bool) {
	body := binary.BigEndian.AppendUint64(nil, w.id)
	body = binary.BigEndian.AppendUint64(body, w.number)
	final := byte(0)
	if last {
		final = 1
	}
	body = append(append(body, final), w.data...)
	p := &w.node.publishing
	p.mu.Lock()
	w.node.send(w.subject, wire.KindPart, body)
	p.mu.Unlock()
	w.number++
	w.data = w.data[:0]
}

var _ io.Writer = (*parts)(nil)
