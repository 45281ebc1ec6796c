package e2e

import (
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestGarbage sends random bytes to the agent's sockets while good traffic goes
// on. Connections are lost by it, and nothing else.
func TestGarbage(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 3, "least_requests")
		s.start()
		load := startTraffic(t, s.front, 4)
		s.decides(20)
		rounds := 150
		if soak {
			rounds = 20_000
		}
		s.proxy.garbage(rounds)
		s.decides(30)
		n := load.stop()

		p := s.agent.settled(pool)
		if p.Decisions != n || p.Outcomes["served"] != n || p.FellOpen != 0 {
			t.Errorf("%d requests: %+v", n, p)
		}
		m := s.agent.metrics()
		for _, series := range s.proxy.countsGarbage() {
			if m[series] == 0 {
				t.Errorf("%s counts no garbage", series)
			}
		}
		for _, series := range []string{"pointsman_spoe_panics_total", "pointsman_nginx_panics_total"} {
			if m[series] != 0 {
				t.Errorf("%s is %v", series, m[series])
			}
		}
		if rss := s.agent.rss(); rss > 256<<20 && !raced {
			t.Errorf("the agent takes %d MiB", rss>>20)
		}
	})
}

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
			c.Read(make([]byte, 64))
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
