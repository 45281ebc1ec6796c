package e2e

import (
	endian "encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// spop is an HAProxy's end of a connection to the agent, as SPOE.txt has it.
type spop struct{ c net.Conn }

func number(b []byte, v int) []byte {
	if v < 240 {
		return append(b, byte(v))
	}
	b = append(b, byte(v)|0xf0)
	for v = (v - 240) >> 4; v >= 128; v = (v - 128) >> 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func text(b []byte, s string) []byte { return append(number(b, len(s)), s...) }

func pair(b []byte, key, value string) []byte { return text(append(text(b, key), 8), value) }

// send writes a frame.
func (s spop) send(kind byte, payload []byte) error {
	b := append([]byte{0, 0, 0, 0, kind, 0, 0, 0, 1}, 1, 1)
	if kind == 1 {
		b[9], b[10] = 0, 0
	}
	b = append(b, payload...)
	endian.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := s.c.Write(b)
	return err
}

// receive reads a frame and returns its type.
func (s spop) receive() (byte, error) {
	var b [64 << 10]byte
	n, err := s.c.Read(b[:]) // the agent writes a frame at once, and waits then
	if err != nil {
		return 0, err
	}
	if n < 5 || int(endian.BigEndian.Uint32(b[:])) != n-4 {
		return 0, fmt.Errorf("%d bytes are no frame", n)
	}
	return b[4], nil
}

// ask connects to the agent and asks for a decision on the body.
func ask(address, rid string, body []byte) (spop, error) {
	c, err := net.Dial("unix", address)
	if err != nil {
		return spop{}, err
	}
	s := spop{c}
	hello := pair(nil, "supported-versions", "2.0")
	hello = number(append(text(hello, "max-frame-size"), 3), 131068)
	if err := s.send(1, pair(hello, "capabilities", "pipelining")); err != nil {
		return s, err
	}
	if kind, err := s.receive(); kind != 101 {
		return s, fmt.Errorf("frame %d: %w", kind, err)
	}
	return s, s.ask(rid, body)
}

func (s spop) ask(rid string, body []byte) error {
	m := append(text(nil, "pm-route"), 3)
	return s.send(3, pair(pair(pair(m, "rid", rid), "path", chatPath), "body", string(body)))
}

// The agent holds 10,000 requests of 4 KB, each on a connection of its own as
// HAProxy has them, in at most 200 MB, and decides for another pool as ever.
// What counts is by how much its resident memory grows, also when the decisions
// for others have filled the heap with garbage.
func TestHoldingIsCheap(t *testing.T) {
	if raced {
		t.Skip("the race detector has a memory of its own")
	}
	const n = 10_000
	bin := proxies.HAProxies(t)[0]
	s := newSite(t, bin, fmt.Sprintf(`pools:
  %s: {models: [%s], max_requests: 1, replicas: {r1: {address: "127.0.0.1:1"}}, admission: {wait: agent, bands: {all: {ttl: 1m, max_requests: %d}}}}
  other: {models: [other], replicas: {r1: {address: "127.0.0.1:1"}}}
`, pool, model, n))
	s.edit(", processing_timeout: 1s", "")
	s.agent.start()
	others := func() time.Duration {
		start := time.Now()
		for i := range 200 {
			c, err := ask(s.spoe(), fmt.Sprintf("%032x", 1<<20+i), chat("other", 4096, 8, true, 7))
			if err != nil {
				t.Fatal(err)
			}
			if kind, err := c.receive(); kind != 103 {
				t.Fatalf("frame %d: %v", kind, err)
			}
			c.c.Close()
		}
		return time.Since(start) / 200
	}
	before, quiet := s.agent.rss(), others()
	body := chat(model, 4096, 8, true, 7)
	conns := make([]spop, n+1)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < len(conns); i += 8 {
				var err error
				if conns[i], err = ask(s.spoe(), fmt.Sprintf("%032x", i+1), body); err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	s.awaitQueued("all", n)
	after, busy := s.agent.rss(), others()
	other, err := ask(s.spoe(), fmt.Sprintf("%032x", 2<<20), body)
	if err != nil {
		t.Fatal(err)
	}
	defer other.c.Close()
	if kind, err := other.receive(); kind != 103 { // no place is left
		t.Fatalf("frame %d: %v", kind, err)
	}
	body = chat("other", 4096, 8, true, 7)
	for i := range 2 * n {
		if err := other.ask(fmt.Sprintf("%032x", 3<<20+i), body); err != nil {
			t.Fatal(err)
		}
		if kind, err := other.receive(); kind != 103 {
			t.Fatalf("frame %d: %v", kind, err)
		}
	}
	most := max(after, s.agent.rss())
	t.Logf("%d held: %.0f MB more, %d bytes each, %.0f MB after %d other decisions; another pool decides in %v, %v before",
		n, float64(after-before)/1e6, (after-before)/n, float64(most-before)/1e6, 2*n, busy, quiet)
	if most-before > 200e6 {
		t.Errorf("holding %d requests takes %d bytes, want at most 200 MB", n, most-before)
	}
	if busy > 4*quiet+2*time.Millisecond {
		t.Errorf("another pool decides in %v, before in %v", busy, quiet)
	}
	for _, c := range conns {
		if c.c != nil {
			c.c.Close()
		}
	}
}
