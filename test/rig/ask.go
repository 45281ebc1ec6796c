package rig

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
)

// asked is nginx's end of a connection to the agent.
type asked struct{ c net.Conn }

// Answered waits for the decision, which names a location.
func (a asked) Answered() error {
	resp, err := http.ReadResponse(bufio.NewReader(a.c), nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK && resp.Header.Get("X-Accel-Redirect") == "" {
		return fmt.Errorf("answered %s, %v", resp.Status, resp.Header)
	}
	return nil
}

func (a asked) Close() { a.c.Close() }

// Ask connects to the agent as nginx does and asks for a decision.
func (n *Nginx) Ask(id string, body []byte) (Question, error) {
	c, err := dialUnix(n.Socket)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Pointsman-Id: %s\r\nX-Pointsman-Target: @pm_target\r\n"+
		"Authorization: Bearer some-key\r\nUser-Agent: a-client/1.0\r\nContent-Length: %d\r\n\r\n%s", ChatPath, id, len(body), body)
	return asked{c}, err
}

// Garbage sends what begins well, or not at all, as questions and as log lines.
func (n *Nginx) Garbage(rounds int) {
	throwAt(n.T, "unix", n.Socket, rounds, func(r *rand.Rand, noise []byte) []byte {
		switch r.IntN(4) {
		case 0:
			return []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: ")
		case 1: // a body that is shorter than it says
			return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(noise)+1+r.IntN(1<<30))
		case 2:
			return []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		}
		return nil
	})
	throwAt(n.T, "udp", n.Feed, rounds, func(r *rand.Rand, _ []byte) []byte {
		switch r.IntN(3) {
		case 0: // a line whose fields are noise
			return []byte(`<190>Jan  1 00:00:00 pm: {"id":"`)
		case 1:
			return []byte(`<187>Jan  1 00:00:00 pm: 2026/01/01 00:00:00 [error] `)
		}
		return nil
	})
}
