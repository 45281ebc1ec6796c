package spoa

import (
	"runtime/debug"
	"sync"

	"github.com/negasus/haproxy-spoe-go/action"
)

// call is a NOTIFY frame from its arrival to its ACK. Its messages share one reply.
type call struct {
	conn       *conn
	frame      *buffer // what was sent; nil when it is not needed any more
	stream, id uint64
	m          Message
	w          Reply

	// handedOver: another goroutine reads the connection now. Only the goroutine
	// that runs the Handler uses it.
	handedOver bool

	mu      sync.Mutex // held while the Handler runs
	actions action.Actions
	left    int  // what must end before the ACK: the messages, and each Later
	over    bool // the ACK is written
}

var calls = sync.Pool{New: func() any { return new(call) }}

// run passes the messages to the handler, on the goroutine that reads the connection.
// It reports whether that goroutine still reads it.
func (k *call) run() (reads bool) {
	k.w = Reply{actions: &k.actions, room: k.conn.limit - ackOverhead}
	k.mu.Lock()
	k.left = 1
	ok := k.handle()
	k.left--
	if !ok {
		k.actions.Reset()
		k.left = 0
	}
	if k.left > 0 && len(k.actions) == 0 {
		k.releaseFrame() // no variable points into it
	}
	reads = !k.handedOver
	k.end(ok, reads)
	return reads
}

// handle reports whether the handler did not panic.
func (k *call) handle() (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			k.conn.srv.panicked("handler", p, debug.Stack())
		}
	}()
	for _, m := range k.frame.messages {
		k.conn.srv.stats.messages.Add(1)
		k.m = Message{m, k}
		k.conn.srv.Handler(&k.m, &k.w)
	}
	return true
}

// end writes the ACK when nothing is left to wait for. It unlocks k. Where more
// frames may follow, their ACKs are written together.
func (k *call) end(reuse, moreFollow bool) {
	done := k.left == 0 && !k.over
	k.over = k.over || done
	k.mu.Unlock()
	if !done {
		return
	}
	c := k.conn
	if k.w.dropped > 0 {
		c.srv.stats.dropped.Add(k.w.dropped)
	}
	if err := c.ack(k, moreFollow); err != nil {
		c.fail(err)
	}
	k.releaseFrame()
	if reuse {
		k.conn, k.m, k.w, k.over, k.handedOver = nil, Message{}, Reply{}, false, false
		clear(k.actions)
		k.actions.Reset()
		calls.Put(k)
	}
	<-c.slots
	c.calls.Done()
}

// releaseFrame returns the memory of the frame to its pool.
func (k *call) releaseFrame() {
	if k.frame != nil {
		k.frame.free()
		k.frame = nil
	}
}

// Later is a delayed answer.
type Later struct{ call *call }

// Later delays the ACK until Send is called, which may be after the Handler has
// returned. Only the Handler may call Later. A delayed answer occupies no goroutine
// and, unless a variable is set already, not the memory of the message.
func (m *Message) Later() Later {
	m.call.left++
	return Later{m.call}
}

// Block is called by a Handler before it waits for something: the connection's next
// frames are then read on another goroutine. It returns at once.
func (m *Message) Block() {
	if k := m.call; !k.handedOver {
		k.handedOver = true
		k.conn.handOver()
	}
}

// Send lets set fill the answer and sends it. set must not use memory of the
// message. Send is called once, on another goroutine than the Handler's: it waits
// for the Handler to return, and may wait for the peer to read.
func (l Later) Send(set func(w *Reply)) {
	k := l.call
	k.mu.Lock()
	if k.over { // the Handler panicked after all
		k.mu.Unlock()
		return
	}
	k.fill(set)
	k.left--
	k.end(true, false)
}

func (k *call) fill(set func(w *Reply)) {
	defer func() {
		if p := recover(); p != nil {
			k.actions.Reset()
			k.conn.srv.panicked("answer", p, debug.Stack())
		}
	}()
	set(&k.w)
}
