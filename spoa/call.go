package spoa

import (
	"runtime/debug"
	"sync"

	"github.com/negasus/haproxy-spoe-go/request"
)

// call is what one run of the handler needs, pooled.
type call struct {
	m Message
	w Reply
}

var calls = sync.Pool{New: func() any { return new(call) }}

// handle is called by the library for every NOTIFY frame, on a goroutine of
// that frame. The frame's messages share one reply.
func (c *conn) handle(req *request.Request) {
	p := &c.places[req.StreamID]
	h := p.held
	k := calls.Get().(*call)
	k.w = Reply{actions: &req.Actions, room: c.limit - ackOverhead}
	defer func() {
		if p := recover(); p != nil {
			req.Actions.Reset()
			c.srv.panicked("handler", p, debug.Stack())
		}
		if k.w.dropped > 0 {
			c.srv.stats.dropped.Add(k.w.dropped)
		}
		*k = call{}
		calls.Put(k)
	}()
	for i, msg := range *req.Messages {
		c.srv.stats.messages.Add(1)
		k.m = Message{msg: msg, index: i, held: h}
		if i == len(*req.Messages)-1 {
			k.m.place = p
		}
		c.srv.Handler(&k.m, &k.w)
	}
}
