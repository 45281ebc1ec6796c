package rig

import (
	"io"
	"net"
	"sync"
	"testing"

	"pointsman/loopback"
	"pointsman/test/proxies"
)

// Gate passes connections on to an address until it is shut.
type Gate struct {
	t       testing.TB
	address string // its own
	to      string
	mu      sync.Mutex
	l       net.Listener
	conns   []net.Conn
}

// NewGate returns a gate that is open. It is shut at the test's end.
func NewGate(t testing.TB, to string) *Gate {
	g := &Gate{t: t, address: FreeAddress(t), to: to}
	g.Open()
	t.Cleanup(g.Shut)
	return g
}

// Open makes the gate pass connections on.
func (g *Gate) Open() {
	g.t.Helper()
	l := proxies.Listen(g.t, g.address)
	g.mu.Lock()
	g.l = l
	g.mu.Unlock()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", g.to)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, in, out)
			shut := g.l != l
			g.mu.Unlock()
			if shut {
				in.Close()
				out.Close()
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// Shut makes the gate refuse connections and cuts those it has.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l == nil {
		return
	}
	loopback.Free(g.l, g.l.Addr().String())
	g.l = nil
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// Port is the port that the gate listens on.
func (g *Gate) Port() string {
	_, port, _ := net.SplitHostPort(g.address)
	return port
}
