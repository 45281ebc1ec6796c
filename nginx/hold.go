package nginx

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// hold is the state of a held request: its connection, which fasthttp releases so that
// neither a goroutine nor its buffers wait, and the location of the answer.
type hold struct {
	conn  *lendable
	next  []byte       // the location
	ready atomic.Int32 // of conn and decision
	one   [1]byte      // of the body, where it must be longer than its limit
}

// lending is a listener whose connections can be lent to a request that is held.
type lending struct{ net.Listener }

func (l lending) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lendable{Conn: c}, nil
}

// lendable is a connection that, while it is lent, Close gives to a held
// request.
type lendable struct {
	net.Conn
	lent atomic.Pointer[scratch]
}

// Close closes the connection or, when it is lent, gives it to the request.
func (c *lendable) Close() error {
	if s := c.lent.Swap(nil); s != nil {
		s.partDone()
		return nil
	}
	return c.Conn.Close()
}

// buffers are the buffers for a body.
type buffers struct {
	head []byte
	tail []byte // twice tailSize
}

// keep lets the request of s wait for Decided after its handler has returned. The
// connection is lent to s until then.
func (a *Agent) keep(ctx *fasthttp.RequestCtx, s *scratch) {
	s.next = append(s.next[:0], ctx.Request.Header.Peek("X-Pointsman-Target")...)
	a.release(s)
	a.spare.Put(&buffers{s.head, s.tail})
	s.buffers = buffers{}
	a.held.Add(1)
	s.conn = ctx.Conn().(*lendable)
	s.conn.lent.Store(s)
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {}) // fasthttp then closes the connection, which hands it to s
}

// Decided implements decider.Waiter.
func (s *scratch) Decided() { s.partDone() }

// partDone is called twice: when the decision is made and when the connection is
// ours. The second call sends the answer.
func (s *scratch) partDone() {
	if s.ready.Add(1) == 2 {
		go s.agent.send(s) // the pool is locked
	}
}

// send answers a held request and closes its connection: opening another one is
// cheap compared with a hold.
func (a *Agent) send(s *scratch) {
	defer a.held.Done()
	c := s.conn
	defer c.Close()
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	defer func() {
		if r := recover(); r != nil {
			a.panicked(r)
		}
	}()
	resp.Header.SetNoDefaultContentType(true)
	resp.SetConnectionClose()
	a.answer(resp, s.next, s)
	s.conn = nil
	s.ready.Store(0)
	a.scratch.Put(s)
	c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = resp.WriteTo(c) // it fails if the client gave up
}
