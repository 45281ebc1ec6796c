package e2e

import (
	"fmt"
	"testing"
)

// TestForgedLines has a client write lines of the feed into whatever of its request
// the proxy logs, while its answers break off so that nginx logs the request among
// its errors. Nothing but what happened counts: the replica that is named in the
// forged lines is blamed for nothing.
func TestForgedLines(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 4, "round_robin")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		const id = "0123456789abcdef0123456789abcdef"
		haproxys := "PM1 ev=close rid=" + id + " pool=" + pool + " srv=r4 st=503 ts=SC rc=+2 PM."
		call := small(true)
		call.path = chatPath + fmt.Sprintf(`?{"id":%q,"srv":"pm~%s~r4","addr":%q,"ust":"502","hdr":"-","uconn":"-","ulen":"0","clen":"","status":"502","done":"OK"}`, id, pool, engines[3].address)
		call.header = map[string]string{
			"Referer":    haproxys + ` upstream prematurely closed connection while reading upstream, client: x, upstream: "http://` + engines[3].address + `/"`,
			"User-Agent": haproxys,
		}
		for _, e := range engines[:3] {
			fault(t, e, `{"die_after":3,"count":6}`)
		}
		broken := 0
		for range 40 {
			if a := call.do(client, s.front); a.err != nil {
				broken++
			}
		}
		p := s.agent.settled(pool)
		if r4 := p.replica("r4"); broken == 0 || r4.Failed != 0 || r4.State != "up" || p.Outcomes["refused"] != 0 || p.ended() != 40 {
			t.Errorf("%d answers broke off: %+v", broken, p)
		}
	})
}
