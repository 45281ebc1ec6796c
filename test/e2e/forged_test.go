package e2e

import (
	"fmt"
	"testing"

	"pointsman/test/rig"
)

// TestForgedLines has a client write lines of the feed into whatever of its request
// the proxy logs, while its answers break off so that nginx logs the request among
// its errors. Nothing but what happened counts: the replica that is named in the
// forged lines is blamed for nothing.
func TestForgedLines(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 4, "round_robin")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		const id = "0123456789abcdef0123456789abcdef"
		haproxys := "PM1 ev=close rid=" + id + " pool=" + rig.Pool + " srv=r4 st=503 ts=SC rc=+2 PM."
		call := rig.Small(true)
		call.Path = rig.ChatPath + fmt.Sprintf(`?{"id":%q,"srv":"pm~%s~r4","addr":%q,"ust":"502","hdr":"-","uconn":"-","ulen":"0","clen":"","status":"502","done":"OK"}`, id, rig.Pool, engines[3].Address)
		call.Header = map[string]string{
			"Referer":    haproxys + ` upstream prematurely closed connection while reading upstream, client: x, upstream: "http://` + engines[3].Address + `/"`,
			"User-Agent": haproxys,
		}
		for _, e := range engines[:3] {
			rig.Fault(t, e, `{"die_after":3,"count":6}`)
		}
		broken := 0
		for range 40 {
			if a := call.Do(client, s.Front); a.Err != nil {
				broken++
			}
		}
		p := s.Agent.Settled(rig.Pool)
		if r4 := p.Replica("r4"); broken == 0 || r4.Failed != 0 || r4.State != "up" || p.Outcomes["refused"] != 0 || p.Ended() != 40 {
			t.Errorf("%d answers broke off: %+v", broken, p)
		}
	})
}
