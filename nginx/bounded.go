package nginx

import (
	"net"
	"sync"
	"sync/atomic"
)

// bounded is a listener that closes connections beyond maxConns, and what may be
// held besides, at once: an answer of 503 in their place would reach the client.
type bounded struct {
	net.Listener
	agent *Agent
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.agent.open.Add(1) <= maxConns+int64(b.agent.options.Load().MostHeld) {
			return &counted{Conn: c, agent: b.agent}, nil
		}
		b.agent.open.Add(-1)
		b.agent.refused.Inc()
		c.Close()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	agent *Agent
	once  sync.Once
	lent  atomic.Pointer[scratch] // set while fasthttp is to give it back
}

// Close closes the connection or, when it is lent, gives it back.
func (c *counted) Close() error {
	if s := c.lent.Swap(nil); s != nil {
		s.part()
		return nil
	}
	c.once.Do(func() { c.agent.open.Add(-1) })
	return c.Conn.Close()
}
