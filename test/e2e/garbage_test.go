package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// TestGarbage throws random bytes at the agent's sockets while good traffic
// goes on. Connections are lost by it, and nothing else.
func TestGarbage(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := threeReplicas(t, bin)
		s.start()
		load := startTraffic(t, s.front, 4)
		s.decides(20)
		rounds := 150
		if soak {
			rounds = 20_000
		}
		var throwers sync.WaitGroup
		for n, socket := range []struct{ network, address string }{{"unix", s.spoe()}, {"tcp", s.feed}} {
			throwers.Go(func() {
				r := rand.New(rand.NewPCG(7, uint64(n)))
				for range rounds {
					throw(t, r, socket.network, socket.address)
				}
			})
		}
		throwers.Wait()
		s.decides(30)
		n := load.stop()

		p := s.agent.settled(pool)
		if p.Decisions != n || p.Outcomes["served"] != n || p.FellOpen != 0 {
			t.Errorf("%d requests: %+v", n, p)
		}
		m := s.agent.metrics()
		if m["pointsman_spoe_panics_total"] != 0 {
			t.Errorf("%v panics", m["pointsman_spoe_panics_total"])
		}
		if m["pointsman_spoe_malformed_total"] == 0 || m[`pointsman_feed_malformed_total{proxy="haproxy"}`] == 0 {
			t.Errorf("garbage is not counted: %v spoe, %v feed", m["pointsman_spoe_malformed_total"], m[`pointsman_feed_malformed_total{proxy="haproxy"}`])
		}
		if rss := s.agent.rss(); rss > 256<<20 && !raced {
			t.Errorf("the agent takes %d MiB", rss>>20)
		}
	})
}

// throw sends garbage over one connection: noise, or something that begins well.
func throw(t *testing.T, r *rand.Rand, network, address string) {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	noise := make([]byte, r.IntN(3000))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var b []byte
	switch r.IntN(6) {
	case 0: // noise alone
	case 1: // the length of a frame that is far too long
		b = []byte{0xff, 0xff, 0xff, 0xff}
	case 2: // a frame of the right length, with HAPROXY-HELLO's type
		b = []byte{0, 0, byte(len(noise) >> 8), byte(len(noise)), 1, 0, 0, 0, 1, 0, 0}
	case 3: // a frame that asks, before any hello
		b = []byte{0, 0, byte(len(noise) >> 8), byte(len(noise)), 3, 0, 0, 0, 1, 1, 1}
	case 4: // a line of the feed whose fields are noise
		b = fmt.Appendf(nil, "%d PM1 ev=close rid=", len(noise)+len("PM1 ev=close rid="))
	case 5: // a line that never ends
		b = []byte("99999999999999999999 PM1 ev=close")
	}
	// The agent may close while this is being written, or wait for more.
	if _, err := c.Write(append(b, noise...)); err == nil && r.IntN(2) == 0 {
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		c.Read(make([]byte, 64))
	}
}
