package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// No form of a request leads around the agent: with an admission it is decided or
// refused, and never balanced by the proxy alone.
func TestNothingGoesAround(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		e := startEngine(t, "r1", engineOptions{Models: []string{model}})
		s := newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], replicas: %s, admission: {wait: agent}}}\n", pool, model, replicasYAML(e)))
		s.unhurried()
		s.start()
		body := `{"model":"unknown","messages":[{"role":"user","content":"hi"}]}`
		for why, head := range map[string]string{
			"HTTP/1.0 without Host": "HTTP/1.0\r\n",
			"a control character":   "HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-A: a\x01b\r\n",
		} {
			c, err := net.Dial("tcp", s.front)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "POST %s %sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, head, len(body), body)
			b, _ := io.ReadAll(c)
			c.Close()
			answer := string(b)
			// An engine's refusal reads otherwise.
			if !strings.Contains(answer, "The request cannot be read.") && !strings.Contains(answer, "The model 'unknown' does not exist.") {
				t.Errorf("%s: answered %q", why, answer)
			}
		}
	})
}
