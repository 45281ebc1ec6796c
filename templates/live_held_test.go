package templates_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pointsman/templates"
	"pointsman/test/proxies"
)

// TestHeldLong: a request that is held for longer than its body may take does no harm. On
// 2.6 the timer of wait-for-body goes on meanwhile, and when it ends HAProxy aborts: each
// request that it carries is lost.
func TestHeldLong(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		for _, form := range forms {
			t.Run(bin.Version+"/"+form, func(t *testing.T) {
				t.Parallel()
				g := newRig(t, bin, form, func(o *templates.HAProxy) { o.BodyTimeout, o.ProcessingTimeout = time.Second, 10*time.Second })
				g.agent.answers(func(vars) vars { return nil })
				g.agent.start(t)
				t.Cleanup(g.agent.stop)
				g.returns()
				g.agent.answers(func(vars) vars {
					time.Sleep(5 * time.Second)
					return vars{"server": "r2"}
				})
				c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				body := `{"model":"llama-8b","messages":[]}`
				// The body comes after the headers: HAProxy waits for it.
				fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(body))
				time.Sleep(100 * time.Millisecond)
				io.WriteString(c, body)
				c.SetReadDeadline(time.Now().Add(30 * time.Second))
				if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200") {
					t.Errorf("%v: %.200s", err, b)
				}
			})
		}
	}
}
