package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// askNginx connects to the agent as nginx does and asks for a decision on body.
func askNginx(address, id string, body []byte) (net.Conn, error) {
	c, err := net.Dial("unix", address)
	for errors.Is(err, syscall.EAGAIN) { // many are not accepted yet
		time.Sleep(time.Millisecond)
		c, err = net.Dial("unix", address)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Pointsman-Id: %s\r\nX-Pointsman-Target: @pm_target\r\n"+
		"Authorization: Bearer some-key\r\nUser-Agent: a-client/1.0\r\nContent-Length: %d\r\n\r\n%s", chatPath, id, len(body), body)
	return c, err
}

// The agent holds 10,000 questions of nginx of 4 KB in at most 200 MB, and
// answers all of them when it ends.
func TestNginxHoldingIsCheap(t *testing.T) {
	if raced {
		t.Skip("the race detector has a memory of its own")
	}
	const n = 10_000
	bin := proxies.Nginxes(t)[0]
	s := newNginxSite(t, bin, fmt.Sprintf(`pools:
  %s: {models: [%s], max_requests: 1, replicas: {r1: {address: "127.0.0.1:1"}}, admission: {wait: agent, bands: {all: {ttl: 1m, max_requests: %d}}}}
`, pool, model, n))
	s.edit("processing_timeout: 1s, ", "")
	s.agent.start()
	before := s.agent.rss()
	body := chat(model, 4096, 8, true, 7)
	conns := make([]net.Conn, n+1)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < len(conns); i += 8 {
				var err error
				if conns[i], err = askNginx(s.dir+"/nginx.sock", fmt.Sprintf("%032x", i+1), body); err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	s.awaitQueued("all", n)
	after := s.agent.rss()
	t.Logf("%d held: %.0f MB more, %d bytes each", n, float64(after-before)/1e6, (after-before)/n)
	if after-before > 200e6 {
		t.Errorf("holding %d requests takes %d bytes, want at most 200 MB", n, after-before)
	}
	s.agent.signal(syscall.SIGTERM)
	for i, c := range conns {
		if c == nil {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.Header.Get("X-Accel-Redirect") == "" {
			t.Errorf("request %d: %v %v", i, resp, err)
			break
		}
		c.Close()
	}
}
