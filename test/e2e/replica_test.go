package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// trouble is a replica that fails, among others that do not.
type trouble struct {
	*rig.Site
	t      *testing.T
	client *http.Client
	bad    *rig.Engine
	before rig.PoolStatus // as the trouble begins
	silent int            // requests whose end the proxy has not logged
}

// TestReplicaTrouble has a replica fail in each way. The next decision knows, and
// knows when it is over.
func TestReplicaTrouble(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 3, "least_requests")
		s.Edit("retry_sent: true", "retry_sent: false")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		if by := s.Serve(client, 30); len(by) != 3 {
			t.Fatalf("before any trouble, served by %v", by)
		}
		x := &trouble{Site: s, t: t, client: client, bad: engines[0]}
		x.isPoisoned()
		x.breaksOff("a stream", rig.Small(true))
		x.breaksOff("an answer", rig.Small(false))
		x.diesBeforeAnswer()
		x.diesInPrefill()
		x.refuses()
		x.isDrained()
		x.twoRefuse(engines)

		// Nothing is left of all this.
		p := s.Agent.Settled(rig.Pool)
		s.Idle(p)
		for _, r := range p.Replicas {
			if r.State != "up" {
				t.Errorf("at the end: %+v", r)
			}
		}
		if n := p.Replica("r3").Failed; n != 0 {
			t.Errorf("r3 is blamed for %d failures that were others'", n)
		}
		if p.Outcomes["refused"] != 0 {
			t.Errorf("outcomes %v", p.Outcomes)
		}
		if s.Can.AnswersBroken {
			s.Untroubled()
		} else { // what ends without a word is not logged either
			s.Untroubled("pointsman_reservations_expired_total")
		}
	})
}

// begins waits until earlier requests have ended, and notes how things are before
// a trouble.
func (x *trouble) begins() {
	x.t.Helper()
	rig.Eventually(x.t, 10*time.Second, "earlier requests have ended", func() (bool, string) {
		x.before = x.Agent.Pool(rig.Pool)
		return x.before.Reservations <= x.silent, fmt.Sprint(x.before)
	})
}

// failures is how many failures the replica has been blamed for since.
func (x *trouble) failures() int {
	return x.Agent.Pool(rig.Pool).Replica(x.bad.Name).Failed - x.before.Replica(x.bad.Name).Failed
}

// ejects has trouble come, by do, and checks that it counts as one failure with
// the outcome, and that the replica is spared while it is ejected. Then it waits
// until the replica is back. A try does not count in which a proxy that does not
// know it puts the failure on the client, or in which the ejection was over before
// it was seen.
func (x *trouble) ejects(how, outcome string, do func()) {
	x.t.Helper()
	for range attempts {
		x.begins()
		do()
		var p rig.PoolStatus
		rig.Eventually(x.t, 5*time.Second, how+": the end is known", func() (bool, string) {
			p = x.Agent.Pool(rig.Pool)
			return p.Reservations <= x.silent && p.Ended() > x.before.Ended(), fmt.Sprint(p)
		})
		got := p.Outcomes[outcome] - x.before.Outcomes[outcome]
		if x.failures() != got || got > 1 || x.Can.KnowsWhoBroke && got == 0 {
			x.t.Errorf("%s: %d failures, outcomes %v, before %v", how, x.failures(), p.Outcomes, x.before.Outcomes)
		}
		seen := false
		if got == 1 {
			_, seen = x.Spared(x.client, x.bad.Name, rig.Ejected, 10)
		}
		x.isOver()
		if seen {
			return
		}
	}
	x.t.Fatalf("%s: %s was not seen ejected in any of %d tries", how, x.bad.Name, attempts)
}

func (x *trouble) isOver() {
	x.t.Helper()
	x.AwaitState(x.bad.Name, 30*time.Second, "up")
	x.Returns(x.client, x.bad.Name)
}

// isPoisoned has requests that the replica answers with 500 or 501, and others well. That
// is not its fault: it goes on.
func (x *trouble) isPoisoned() {
	x.t.Helper()
	x.begins()
	for _, status := range []int{500, 501} {
		for range 4 {
			rig.Fault(x.t, x.bad, fmt.Sprintf(`{"status":%d,"count":1}`, status))
			x.Hit(x.client, rig.Small(false), x.bad, func(a rig.Answer) bool { return a.Status == status && a.Engine == x.bad.Name })
			if state := x.Agent.Pool(rig.Pool).Replica(x.bad.Name).State; state != "up" {
				x.t.Errorf("after an answer of %d it is %s", status, state)
			}
			x.Returns(x.client, x.bad.Name)
		}
	}
}

// breaksOff has the replica die in the middle of the answer to c.
func (x *trouble) breaksOff(what string, c rig.Call) {
	x.t.Helper()
	x.ejects("broke off "+what, "died", func() {
		rig.Fault(x.t, x.bad, `{"die_after":3,"count":1}`)
		x.Hit(x.client, c, x.bad, func(a rig.Answer) bool { return a.Err != nil })
	})
}

// diesBeforeAnswer has the replica die after it has got a request. Whether it had
// begun cannot be known: no second replica gets it.
func (x *trouble) diesBeforeAnswer() {
	x.t.Helper()
	die := func() (last rig.Answer) {
		rig.Fault(x.t, x.bad, `{"die_after":0,"count":1}`)
		x.Hit(x.client, rig.Small(true), x.bad, func(a rig.Answer) bool {
			last = a
			return a.Status == http.StatusBadGateway || a.Err != nil && !x.Can.AnswersBroken
		})
		return last
	}
	if !x.Can.AnswersBroken {
		if x.begins(); die().Err != nil {
			x.silent++ // until the replica is known to be down
		}
		return
	}
	x.ejects("died before its answer", "died", func() {
		last := die()
		if x.Can.ExplainsBroken && (!strings.Contains(string(last.Body), `"code":"replica_failed"`) || !strings.HasPrefix(last.Header.Get("Content-Type"), "application/json")) {
			x.t.Errorf("died before its answer: %s", last.Body)
		}
	})
}

// diesInPrefill has the replica die with requests that it has begun, from clients
// that it has served before.
func (x *trouble) diesInPrefill() {
	x.t.Helper()
	x.begins()
	ctx, leave := context.WithCancel(x.t.Context())
	defer leave()
	status := make(chan int, 9)
	for range cap(status) {
		req, err := rig.Held().Request(ctx, x.Front, nil)
		if err != nil {
			x.t.Fatal(err)
		}
		go func() {
			resp, err := x.client.Do(req)
			if err != nil {
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		}()
	}
	x.AwaitReservations(x.before.Reservations + cap(status))
	n := x.Agent.Pool(rig.Pool).Replica(x.bad.Name).InFlight - x.before.Replica(x.bad.Name).InFlight
	if n == 0 {
		x.t.Fatalf("none of %d is at %s", cap(status), x.bad.Name)
	}
	rig.Eventually(x.t, 5*time.Second, "they are there", func() (bool, string) { return x.bad.Holds() == n, fmt.Sprint(x.bad.Holds()) })
	x.bad.Down(x.t)
	for range n {
		select {
		case code := <-status:
			if code != http.StatusBadGateway && (code != 0 || x.Can.AnswersBroken) {
				x.t.Errorf("a request whose replica died was answered %d, want 502", code)
			}
		case <-time.After(30 * time.Second):
			x.t.Fatal("a request whose replica died was not answered")
		}
	}
	rig.Eventually(x.t, 20*time.Second, "nothing is in flight at "+x.bad.Name, func() (bool, string) {
		p := x.Agent.Pool(rig.Pool)
		return p.Replica(x.bad.Name).InFlight == 0, fmt.Sprint(p)
	})
	leave()
	x.silent = 0
	x.bad.Up(x.t)
	x.isOver()
}

// refuses has the replica refuse connections. The request that meets it is served
// by another; after that only the ejection's end leads a request there.
func (x *trouble) refuses() {
	x.t.Helper()
	x.begins()
	x.bad.Down(x.t)
	rig.Eventually(x.t, 5*time.Second, "a decision has met the refusal", func() (bool, string) {
		by := x.Serve(x.client, 1)
		p := x.Agent.Pool(rig.Pool)
		return x.failures() > 0 || p.Replica(x.bad.Name).State == "down", fmt.Sprint(by, p)
	})
	if x.Can.Checks {
		x.AwaitState(x.bad.Name, 5*time.Second, rig.Ejected, "down")
		x.AwaitState(x.bad.Name, 15*time.Second, "down")
		x.staysSpared("down")
	} else {
		seen := false
		for range attempts { // each pause is twice as long as the one before
			x.Serve(x.client, 6)
			if _, seen = x.Spared(x.client, x.bad.Name, rig.Ejected, 10); seen {
				break
			}
		}
		if !seen {
			x.t.Errorf("%s refuses connections and was never seen ejected", x.bad.Name)
		}
	}
	x.bad.Up(x.t)
	x.isOver()
}

// staysSpared checks that the next requests succeed elsewhere, in a state that
// does not end by itself.
func (x *trouble) staysSpared(state string) {
	x.t.Helper()
	if n, _ := x.Spared(x.client, x.bad.Name, state, 20); n != 20 {
		x.t.Errorf("%s was %s for %d of 20 requests only", x.bad.Name, state, n)
	}
}

// isDrained drains the replica at the proxy.
func (x *trouble) isDrained() {
	x.t.Helper()
	if !x.Can.Runtime {
		return
	}
	x.HAProxy().State(x.bad.Name, "drain")
	x.AwaitState(x.bad.Name, 5*time.Second, "draining")
	x.staysSpared("draining")
	x.HAProxy().State(x.bad.Name, "ready")
	x.isOver()
}

// twoRefuse has two of three refuse: the second choice too, for some.
func (x *trouble) twoRefuse(engines []*rig.Engine) {
	x.t.Helper()
	for _, e := range engines[:2] {
		e.Down(x.t)
	}
	if !x.Can.TriesOthers {
		for _, e := range engines[:2] {
			x.AwaitState(e.Name, 15*time.Second, "down")
		}
	}
	x.Serve(x.client, 20)
	for _, e := range engines[:2] {
		e.Up(x.t)
	}
	for _, e := range engines[:2] {
		x.AwaitState(e.Name, 30*time.Second, "up")
		x.Returns(x.client, e.Name)
	}
}

// TestAllDown has every replica refuse. The client gets what the proxy alone would
// answer, and requests go on when the replicas are back.
func TestAllDown(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 4)
		for _, e := range engines {
			e.Down(t)
		}
		for range 5 {
			if a := rig.Small(false).Do(client, s.Front); a.Err != nil || a.Status != s.Proxy.NoReplica() {
				t.Errorf("%d %v, want %d", a.Status, a.Err, s.Proxy.NoReplica())
			}
		}
		for _, e := range engines {
			e.Up(t)
		}
		rig.Eventually(t, 20*time.Second, "they serve again", func() (bool, string) {
			a := rig.Small(false).Do(client, s.Front)
			return a.Status == 200, fmt.Sprint(a.Status)
		})
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}

// TestUnknownReplica gives the agent a replica that the proxy does not know yet.
// Requests may cost a second question, and none fails.
func TestUnknownReplica(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return !can.Runtime }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		more := rig.StartEngine(t, "r9", rig.EngineOptions{Models: []string{rig.Model}})
		s.Edit("replicas: {", fmt.Sprintf("replicas: {r9: {address: %q}, ", more.Address))
		s.ReloadAgent()
		if p := s.Agent.Pool(rig.Pool); len(p.Replicas) != 3 {
			t.Fatalf("%+v", p)
		}
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		if by := s.Serve(client, 20); by["r9"] != 0 {
			t.Errorf("served by %v", by)
		}
		if p := s.Agent.Settled(rig.Pool); p.Replica("r9").Chosen == 0 || p.Outcomes["served"] != 20 {
			t.Errorf("%+v", p)
		}
		s.Nginx().ReloadRendered()
		s.AwaitState("r9", 60*time.Second, "up")
		client.CloseIdleConnections()
		s.Returns(client, "r9")
	})
}

// TestHealth has the agent ask the replicas for their health.
func TestHealth(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return !can.Checks }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "round_robin")
		s.Edit("max_requests: 0", "health: {poll: 100ms}")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 4)
		rig.Fault(t, engines[0], `{"status":503,"path":"/health"}`)
		s.AwaitState("r1", 5*time.Second, "down")
		if by := s.Serve(client, 10); by["r1"] != 0 {
			t.Errorf("while down, served by %v", by)
		}
		engines[0].Recovers(t)
		s.AwaitState("r1", 5*time.Second, "up")
		s.Returns(client, "r1")
	})
}
