package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// trouble is a replica that fails, among others that do not.
type trouble struct {
	*site
	t      *testing.T
	client *http.Client
	bad    *engine
	before poolStatus // as the trouble begins
	silent int        // requests whose end the proxy has not logged
}

// TestReplicaTrouble has a replica fail in each way. The next decision knows, and
// knows when it is over.
func TestReplicaTrouble(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 3, "least_requests")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		if by := s.serve(client, 30); len(by) != 3 {
			t.Fatalf("before any trouble, served by %v", by)
		}
		x := &trouble{site: s, t: t, client: client, bad: engines[0]}
		x.isPoisoned()
		x.breaksOff("a stream", small(true))
		x.breaksOff("an answer", small(false))
		x.diesBeforeAnswer()
		x.diesInPrefill()
		x.refuses()
		x.isDrained()
		x.twoRefuse(engines)

		// Nothing is left of all this.
		p := s.agent.settled(pool)
		s.idle(p)
		for _, r := range p.Replicas {
			if r.State != "up" {
				t.Errorf("at the end: %+v", r)
			}
		}
		if n := p.replica("r3").Failed; n != 0 {
			t.Errorf("r3 is blamed for %d failures that were others'", n)
		}
		if p.Outcomes["refused"] != 0 {
			t.Errorf("outcomes %v", p.Outcomes)
		}
		if s.can.answersBroken {
			s.untroubled()
		} else { // what ends without a word is not logged either
			s.untroubled("pointsman_reservations_expired_total")
		}
	})
}

// begins waits until earlier requests have ended, and notes how things are before
// a trouble.
func (x *trouble) begins() {
	x.t.Helper()
	eventually(x.t, 10*time.Second, "earlier requests have ended", func() (bool, string) {
		x.before = x.agent.pool(pool)
		return x.before.Reservations <= x.silent, fmt.Sprint(x.before)
	})
}

// failures is how many failures the replica has been blamed for since.
func (x *trouble) failures() int {
	return x.agent.pool(pool).replica(x.bad.name).Failed - x.before.replica(x.bad.name).Failed
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
		var p poolStatus
		eventually(x.t, 5*time.Second, how+": the end is known", func() (bool, string) {
			p = x.agent.pool(pool)
			return p.Reservations <= x.silent && p.ended() > x.before.ended(), fmt.Sprint(p)
		})
		got := p.Outcomes[outcome] - x.before.Outcomes[outcome]
		if x.failures() != got || got > 1 || x.can.knowsWhoBroke && got == 0 {
			x.t.Errorf("%s: %d failures, outcomes %v, before %v", how, x.failures(), p.Outcomes, x.before.Outcomes)
		}
		seen := false
		if got == 1 {
			_, seen = x.spared(x.client, x.bad.name, ejected, 10)
		}
		x.isOver()
		if seen {
			return
		}
	}
	x.t.Fatalf("%s: %s was not seen ejected in any of %d tries", how, x.bad.name, attempts)
}

func (x *trouble) isOver() {
	x.t.Helper()
	x.awaitState(x.bad.name, 30*time.Second, "up")
	x.returns(x.client, x.bad.name)
}

// isPoisoned has requests that the replica answers with 500 or 501. That is not its
// fault: it goes on.
func (x *trouble) isPoisoned() {
	x.t.Helper()
	x.begins()
	for _, status := range []int{500, 501} {
		fault(x.t, x.bad, fmt.Sprintf(`{"status":%d,"count":4}`, status))
		for range 4 {
			x.hit(x.client, small(false), x.bad, func(a answer) bool { return a.status == status && a.engine == x.bad.name })
			if state := x.agent.pool(pool).replica(x.bad.name).State; state != "up" {
				x.t.Errorf("after an answer of %d it is %s", status, state)
			}
		}
	}
	x.returns(x.client, x.bad.name)
}

// breaksOff has the replica die in the middle of the answer to c.
func (x *trouble) breaksOff(what string, c call) {
	x.t.Helper()
	x.ejects("broke off "+what, "died", func() {
		fault(x.t, x.bad, `{"die_after":3,"count":1}`)
		x.hit(x.client, c, x.bad, func(a answer) bool { return a.err != nil })
	})
}

// diesBeforeAnswer has the replica die after it has got a request. Whether it had
// begun cannot be known: no second replica gets it.
func (x *trouble) diesBeforeAnswer() {
	x.t.Helper()
	die := func() (last answer) {
		fault(x.t, x.bad, `{"die_after":0,"count":1}`)
		x.hit(x.client, small(true), x.bad, func(a answer) bool {
			last = a
			return a.status == http.StatusBadGateway || a.err != nil && !x.can.answersBroken
		})
		return last
	}
	if !x.can.answersBroken {
		if x.begins(); die().err != nil {
			x.silent++ // until the replica is known to be down
		}
		return
	}
	x.ejects("died before its answer", "died", func() {
		last := die()
		if x.can.explainsBroken && (!strings.Contains(string(last.body), `"code":"replica_failed"`) || !strings.HasPrefix(last.header.Get("Content-Type"), "application/json")) {
			x.t.Errorf("died before its answer: %s", last.body)
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
		req, err := held().request(ctx, x.front, nil)
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
	x.awaitReservations(x.before.Reservations + cap(status))
	n := x.agent.pool(pool).replica(x.bad.name).InFlight - x.before.replica(x.bad.name).InFlight
	if n == 0 {
		x.t.Fatalf("none of %d is at %s", cap(status), x.bad.name)
	}
	eventually(x.t, 5*time.Second, "they are there", func() (bool, string) { return x.bad.holds() == n, fmt.Sprint(x.bad.holds()) })
	x.bad.down(x.t)
	for range n {
		select {
		case code := <-status:
			if code != http.StatusBadGateway && (code != 0 || x.can.answersBroken) {
				x.t.Errorf("a request whose replica died was answered %d, want 502", code)
			}
		case <-time.After(30 * time.Second):
			x.t.Fatal("a request whose replica died was not answered")
		}
	}
	eventually(x.t, 20*time.Second, "nothing is in flight at "+x.bad.name, func() (bool, string) {
		p := x.agent.pool(pool)
		return p.replica(x.bad.name).InFlight == 0, fmt.Sprint(p)
	})
	leave()
	x.silent = 0
	x.bad.up(x.t)
	x.isOver()
}

// refuses has the replica refuse connections. The request that meets it is served
// by another; after that only the ejection's end leads a request there.
func (x *trouble) refuses() {
	x.t.Helper()
	x.begins()
	x.bad.down(x.t)
	eventually(x.t, 5*time.Second, "a decision has met the refusal", func() (bool, string) {
		by := x.serve(x.client, 1)
		p := x.agent.pool(pool)
		return x.failures() > 0 || p.replica(x.bad.name).State == "down", fmt.Sprint(by, p)
	})
	if x.can.checks {
		x.awaitState(x.bad.name, 5*time.Second, ejected, "down")
		x.awaitState(x.bad.name, 15*time.Second, "down")
		x.staysSpared("down")
	} else {
		seen := false
		for range attempts { // each pause is twice as long as the one before
			x.serve(x.client, 6)
			if _, seen = x.spared(x.client, x.bad.name, ejected, 10); seen {
				break
			}
		}
		if !seen {
			x.t.Errorf("%s refuses connections and was never seen ejected", x.bad.name)
		}
	}
	x.bad.up(x.t)
	x.isOver()
}

// staysSpared checks that the next requests succeed elsewhere, in a state that
// does not end by itself.
func (x *trouble) staysSpared(state string) {
	x.t.Helper()
	if n, _ := x.spared(x.client, x.bad.name, state, 20); n != 20 {
		x.t.Errorf("%s was %s for %d of 20 requests only", x.bad.name, state, n)
	}
}

// isDrained drains the replica at the proxy.
func (x *trouble) isDrained() {
	x.t.Helper()
	if !x.can.runtime {
		return
	}
	x.haproxy().state(x.bad.name, "drain")
	x.awaitState(x.bad.name, 5*time.Second, "draining")
	x.staysSpared("draining")
	x.haproxy().state(x.bad.name, "ready")
	x.isOver()
}

// twoRefuse has two of three refuse: the second choice too, for some.
func (x *trouble) twoRefuse(engines []*engine) {
	x.t.Helper()
	for _, e := range engines[:2] {
		e.down(x.t)
	}
	if !x.can.triesOthers {
		for _, e := range engines[:2] {
			x.awaitState(e.name, 15*time.Second, "down")
		}
	}
	x.serve(x.client, 20)
	for _, e := range engines[:2] {
		e.up(x.t)
	}
	for _, e := range engines[:2] {
		x.awaitState(e.name, 30*time.Second, "up")
		x.returns(x.client, e.name)
	}
}

// TestAllDown has every replica refuse. The client gets what the proxy alone would
// answer, and requests go on when the replicas are back.
func TestAllDown(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 2, "round_robin")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		for _, e := range engines {
			e.down(t)
		}
		for range 5 {
			if a := small(false).do(client, s.front); a.err != nil || a.status != s.proxy.noReplica() {
				t.Errorf("%d %v, want %d", a.status, a.err, s.proxy.noReplica())
			}
		}
		for _, e := range engines {
			e.up(t)
		}
		eventually(t, 20*time.Second, "they serve again", func() (bool, string) {
			a := small(false).do(client, s.front)
			return a.status == 200, fmt.Sprint(a.status)
		})
		s.idle(s.agent.settled(pool))
	})
}

// TestRetrySent allows a second replica where the first may have begun.
func TestRetrySent(t *testing.T) {
	onEach(t, that(releases(t), func(can abilities) bool { return can.retriesSent }), func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 2, "round_robin")
		s.edit("retry_sent: false", "retry_sent: true")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		fault(t, engines[0], `{"die_after":0,"count":1}`)
		s.serve(client, 10)
		p := s.agent.settled(pool)
		if p.replica("r1").Failed != 1 || p.Outcomes["served"] != 10 || p.ended() != 10 {
			t.Errorf("%+v", p)
		}
		s.idle(p)
		s.untroubled()
	})
}

// TestUnknownReplica gives the agent a replica that the proxy does not know yet.
// Requests may cost a second question, and none fails.
func TestUnknownReplica(t *testing.T) {
	onEach(t, that(releases(t), func(can abilities) bool { return !can.runtime }), func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "round_robin")
		s.start()
		more := startEngine(t, "r9", engineOptions{Models: []string{model}})
		s.edit("replicas: {", fmt.Sprintf("replicas: {r9: {address: %q}, ", more.address))
		s.reloadAgent()
		if p := s.agent.pool(pool); len(p.Replicas) != 3 {
			t.Fatalf("%+v", p)
		}
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		if by := s.serve(client, 20); by["r9"] != 0 {
			t.Errorf("served by %v", by)
		}
		if p := s.agent.settled(pool); p.replica("r9").Chosen == 0 || p.Outcomes["served"] != 20 {
			t.Errorf("%+v", p)
		}
		s.nginx().reloadRendered()
		s.awaitState("r9", 60*time.Second, "up")
		client.CloseIdleConnections()
		s.returns(client, "r9")
	})
}

// TestHealth has the agent ask the replicas for their health.
func TestHealth(t *testing.T) {
	onEach(t, that(releases(t), func(can abilities) bool { return !can.checks }), func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 2, "round_robin")
		s.edit("max_requests: 0", "health: {poll: 100ms}")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		fault(t, engines[0], `{"status":503,"path":"/health"}`)
		s.awaitState("r1", 5*time.Second, "down")
		if by := s.serve(client, 10); by["r1"] != 0 {
			t.Errorf("while down, served by %v", by)
		}
		engines[0].recovers(t)
		s.awaitState("r1", 5*time.Second, "up")
		s.returns(client, "r1")
	})
}
