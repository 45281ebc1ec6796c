package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// No form of a request leads around the agent: with an admission it is decided or
// refused, and never balanced by the proxy alone.
func TestNothingGoesAround(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		e := rig.StartEngine(t, "r1", rig.EngineOptions{Models: []string{rig.Model}})
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], replicas: %s, admission: {wait: agent}}}\n", rig.Pool, rig.Model, rig.ReplicasYAML(e)))
		s.Unhurried()
		s.Start()
		body := `{"model":"unknown","messages":[{"role":"user","content":"hi"}]}`
		for why, head := range map[string]string{
			"HTTP/1.0 without Host": "HTTP/1.0\r\n",
			"a control character":   "HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-A: a\x01b\r\n",
		} {
			c, err := net.Dial("tcp", s.Front)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "POST %s %sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", rig.ChatPath, head, len(body), body)
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
