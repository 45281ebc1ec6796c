package nginx

import (
	"net"
	"sync"
)

// bounded is a listener that closes connections beyond maxConns at once: an
// answer of 503 in their place would reach the client.
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
		if b.agent.open.Add(1) <= maxConns {
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
}

func (c *counted) Close() error {
	c.once.Do(func() { c.agent.open.Add(-1) })
	return c.Conn.Close()
}
