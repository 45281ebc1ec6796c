package adversary

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"pointsman/test/rig"
)

// TestClaims has clients claim a body of a terabyte and answers of two billion tokens,
// and hide a prompt in UTF-16. What they claim beyond what a replica can hold counts
// for nothing, and what they hide is charged.
func TestClaims(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "least_work")
		s.Edit("max_requests: 0", "max_requests: 8, context_tokens: 100000")
		s.Patient()
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 8)
		input := func() int { return s.Count("prompt_tokens_total") }
		recommended := func() (n struct {
			Recommended int     `json:"recommended_replicas"`
			Saturation  float64 `json:"saturation"`
		}) {
			t.Helper()
			b, err := s.Agent.Get("/autoscale?pool=" + rig.Pool)
			if err == nil {
				err = json.Unmarshal(b, &n)
			}
			if err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			return n
		}
		calm, before := recommended(), input()

		const claims = 4
		for range claims {
			c, err := net.DialTimeout("tcp", s.Front, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			body := rig.Chat(rig.Model, 300_000, 5, true, 7)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", rig.ChatPath, int64(1)<<40)
			_, _ = c.Write(body[:len(body)-3]) // the proxy may refuse it meanwhile
		}
		var long sync.WaitGroup
		for range 2 {
			long.Go(func() {
				c := rig.Call{Body: []byte(fmt.Sprintf(`{"model":%q,"max_tokens":2000000000,"messages":[{"role":"user","content":"hi"}]}`, rig.Model)), Header: map[string]string{"X-Hold": "1"}}
				c.Do(client, s.Front) // the engine refuses it at last
			})
		}
		rig.Eventually(t, 10*time.Second, "they are at the engines", func() (bool, string) {
			n := engines[0].Holds() + engines[1].Holds()
			return n == 2, fmt.Sprint(n)
		})
		if n := input() - before; n > claims*100_000+1000 {
			t.Errorf("claims of a terabyte count as %d tokens", n)
		}
		if now := recommended(); now.Recommended > calm.Recommended || now.Saturation > 1 {
			t.Errorf("recommended %+v, before %+v", now, calm)
		}
		s.Serve(client, 4)
		for _, e := range engines {
			e.Release()
		}
		long.Wait()

		before = input()
		var wide []byte
		for _, u := range utf16.Encode([]rune(string(rig.Chat(rig.Model, 36_000, 5, false, 9)))) {
			wide = binary.LittleEndian.AppendUint16(wide, u)
		}
		a := rig.Call{Body: wide}.Do(client, s.Front)
		if n := input() - before; n < 5000 {
			t.Errorf("a prompt of 36 KB in UTF-16 counts as %d tokens (%d)", n, a.Status)
		}
	})
}
