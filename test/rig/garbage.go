package rig

import (
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// throwAt sends garbage over rounds connections: what begin returns, and then
// the noise that it is given.
func throwAt(t testing.TB, network, address string, rounds int, begin func(r *rand.Rand, noise []byte) []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, uint64(len(network))))
	for range rounds {
		c, err := dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		noise := make([]byte, r.IntN(3000))
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		// The agent may close while this is being written, or wait for more.
		if _, err := c.Write(append(begin(r, noise), noise...)); err == nil && r.IntN(2) == 0 {
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, _ = c.Read(make([]byte, 64))
		}
		c.Close()
	}
}

// dialUnix connects to a unix socket.
func dialUnix(path string) (net.Conn, error) { return dial("unix", path) }

// dial connects to an address, and waits while more connections are not accepted
// yet than the socket's backlog takes.
func dial(network, address string) (net.Conn, error) {
	for {
		c, err := net.DialTimeout(network, address, 10*time.Second)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		time.Sleep(time.Millisecond)
	}
}
