package decider_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
)

// inShadow leaves a share of the requests to the proxy.
func inShadow(share float64) func(*decider.PoolConfig) {
	return func(c *decider.PoolConfig) { c.Shadow = share }
}

// A pool in shadow names no server. Its cache model and its load follow the replica
// that really serves, and it compares its own choice with that.
func TestShadow(t *testing.T) {
	for name, report := range map[string]func(p *decidertest.Pool, id decider.ID, replica string){
		"as it happens": (*decidertest.Pool).Serve,
		"at the end":    (*decidertest.Pool).End, // as nginx reports
	} {
		t.Run(name, func(t *testing.T) {
			p := decidertest.New(policy.LeastWork{}, 3, inShadow(1))
			d, id := p.Send(decidertest.Document(1, 8, 100))
			if d.Server != "" || d.Status != 0 || d.Why != "shadow" || !d.Unsteered || d.Fallbacks[0] != "" {
				t.Errorf("decided %+v", d)
			}
			if s := p.Status(); s.Reservations != 0 || s.Decisions != 1 || !p.Holds(id) {
				t.Errorf("%+v", s)
			}
			report(p, id, "r2")
			// The document is on r2 now. The proxy goes on in turn.
			_, id = p.Send(decidertest.Document(1, 8, 200))
			if r := p.Records()[0]; r.Server != "r2" || r.Why != "shadow" {
				t.Errorf("would be sent to %s, which has not the document: %s", r.Server, r.Why)
			}
			p.Connected(id, []byte("r0"))
			if r := p.Status().Replicas[0]; r.InFlight != 1 || r.Tokens != 8*256+200 {
				t.Errorf("what the proxy has placed on r0 is not booked there: %+v", r)
			}
			report(p, id, "r0")
			_, id = p.Send(decidertest.Document(1, 8, 300))
			report(p, id, "r0")

			s := p.Status()
			c := s.Shadow.Counts
			if s.Shadow.Share != 1 || c.Requests != 3 || c.Compared != 3 || c.PromptTokens != 3*8*256+600 || c.ChosenCached != 2*8*256 || c.ServedCached != 8*256 || c.Sooner != 1 {
				t.Errorf("%+v", s.Shadow)
			}
			if s.Shadow.TTFTChosen >= s.Shadow.TTFTServed || s.Shadow.HitRateChosen <= s.Shadow.HitRateServed || s.Shadow.TTFTChosen <= 0 {
				t.Errorf("%+v", s.Shadow)
			}
			if s.FellOpen != 0 || s.Stats.Mismatches != 0 || s.Reservations != 0 || s.Replicas[0].InFlight != 0 || s.Replicas[0].Tokens != 0 || s.Replicas[0].Served != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A policy that does not look at prompts is compared by hit rates too.
func TestShadowOfAnyPolicy(t *testing.T) {
	p := decidertest.New(&policy.RoundRobin{}, 2, inShadow(1))
	if !p.ComparesText() {
		t.Fatal("prompts are not compared")
	}
	for range 4 {
		_, id := p.Send(decidertest.Document(1, 8, 0))
		p.Serve(id, "r0")
	}
	if s := p.Status().Shadow; s.Counts.ServedCached == 0 || s.Counts.ChosenCached >= s.Counts.ServedCached || s.Counts.Same != 2 {
		t.Errorf("%+v", s)
	}
	p.Apply(inShadow(0))
	if p.ComparesText() || p.Status().Shadow != nil {
		t.Error("after the mode has changed back")
	}
	if d, _ := p.Send(); d.Server == "" || d.Unsteered {
		t.Errorf("%+v", d)
	}
}

// A share is decided: all requests of a session alike, and as many as asked for.
func TestShadowOfAShare(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 4, inShadow(0.9))
	decided := 0
	const sessions = 4000
	for n := range sessions {
		first, id := p.Send(decidertest.InSession(n))
		p.Serve(id, "r1")
		again, id := p.Send(decidertest.InSession(n))
		p.Serve(id, "r1")
		if (first.Server == "") != (again.Server == "") {
			t.Fatalf("session %d is decided once and once not", n)
		}
		if first.Server != "" {
			decided++
		}
	}
	if off := math.Abs(float64(decided) - sessions*0.1); off > 5*math.Sqrt(sessions*0.1*0.9) {
		t.Errorf("%d of %d sessions are decided, want 10 %%", decided, sessions)
	}
	if s := p.Status(); s.Shadow.Requests != 2*(sessions-uint64(decided)) || s.FellOpen != 0 {
		t.Errorf("%+v", s.Shadow)
	}
}

// In shadow no admission holds or refuses, and no replica that is down is a 503.
func TestShadowRefusesNothing(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 1, inShadow(1), func(c *decider.PoolConfig) {
		c.Admission = &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all"}}}
		c.RetryAfter, c.Limit = time.Minute, 1
	})
	var d decider.Decision
	for range 20 {
		if r := p.Request(); p.Submit(r, &d, nil) || d.Status != 0 || d.Server != "" {
			t.Fatalf("%+v", d)
		}
	}
	p.Discovered([]decider.ReplicaState{{Name: "r0", Weight: 1}})
	if r := p.Request(); p.Submit(r, &d, nil) || d.Status != 0 {
		t.Errorf("without a replica: %+v", d)
	}
}

// Of a pool with an admission, the share that is left to the proxy neither waits nor is
// refused. The capacity that it uses keeps the decided share waiting.
func TestShadowOfAShareWithAdmission(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 1, inShadow(0.5), func(c *decider.PoolConfig) {
		c.Admission = &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all", MaxRequests: 2, TTL: time.Minute}}}
		c.Limit = 1
	})
	decided, left := -1, -1
	for n := 0; decided < 0 || left < 0; n++ {
		r := p.Request(decidertest.InSession(n))
		if p.Shadows(r) {
			left = n
		} else {
			decided = n
		}
	}
	submit := func(session int) (*decider.Request, *decider.Decision, bool) {
		r, d := p.Request(decidertest.InSession(session)), new(decider.Decision)
		return r, d, p.Submit(r, d, nobody{})
	}
	first, d, held := submit(left)
	if held || !d.Unsteered {
		t.Fatalf("left to the proxy: held %t, %+v", held, d)
	}
	p.Connected(first.ID, []byte("r0"))
	_, waiting, held := submit(decided)
	if !held || waiting.Server != "" {
		t.Errorf("decided, with a replica that is full: held %t, %+v", held, waiting)
	}
	submit(decided)
	if _, d, held := submit(decided); held || d.Status != 429 {
		t.Errorf("decided, with a queue that is full: held %t, %+v", held, d)
	}
	second, d, held := submit(left)
	if held || d.Status != 0 || !d.Unsteered {
		t.Errorf("left to the proxy, with a queue that is full: held %t, %+v", held, d)
	}
	p.Connected(second.ID, []byte("r0"))
	p.Serve(first.ID, "r0")
	if waiting.Server != "" {
		t.Error("a request is sent although what was left to the proxy fills the replica")
	}
	p.Serve(second.ID, "r0")
	if waiting.Server != "r0" {
		t.Errorf("with room, it is not sent: %+v", waiting)
	}
}

// nobody waits for a decision.
type nobody struct{}

func (nobody) Decided() {}

// What the proxy never reports ends with the lease, and failures count.
func TestShadowEnds(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 2, inShadow(1), func(c *decider.PoolConfig) { c.Lease = time.Minute })
	_, id := p.Send()
	p.Clock.Advance(2 * time.Minute)
	p.Decider.Sweep()
	if p.Holds(id) {
		t.Error("it is kept after its lease")
	}
	_, id = p.Send()
	p.Finished(decider.Outcome{ID: id, End: decider.ClientGone})
	if p.Holds(id) {
		t.Error("it is kept although its client has left")
	}
	for range 3 {
		_, id = p.Send()
		p.Finished(decider.Outcome{ID: id, Server: []byte("r0"), End: decider.Refused, Redispatched: true})
	}
	if s := p.Status(); s.Replicas[0].State != "ejected" || s.Stats.Expired != 0 {
		t.Errorf("%+v", s.Replicas)
	}
	// The membership has changed since the choice: nothing can be compared.
	_, id = p.Send()
	p.Apply(func(c *decider.PoolConfig) { c.Replicas = decidertest.Replicas(3) })
	before := p.Status().Shadow.Counts
	p.Serve(id, "r2")
	if c := p.Status().Shadow.Counts; c.Requests != before.Requests+1 || c.Compared != before.Compared {
		t.Errorf("%+v", c)
	}
}

func TestShadowDoesNotAllocate(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 8, inShadow(1))
	r := p.Request(decidertest.Document(1, 20, 0))
	var d decider.Decision
	replica := []byte("r3")
	one := func() {
		r.ID[0]++
		p.Decide(r, &d)
		p.Connected(r.ID, replica)
		p.Finished(decider.Outcome{ID: r.ID, Server: replica})
	}
	for range 300 {
		one()
	}
	if n := testing.AllocsPerRun(500, one); n > 0.1 {
		t.Errorf("%v allocations a request", n)
	}
}

// tape keeps the recorded requests.
type tape struct{ list []decider.Ended }

func (t *tape) Record(e *decider.Ended) {
	c := *e
	c.Blocks = slices.Clone(e.Blocks)
	t.list = append(t.list, c)
}

// Everything that ends is recorded once, with its prompt: decided, placed by the
// proxy, refused, or never reported.
func TestRecorder(t *testing.T) {
	rec := &tape{}
	p := decidertest.New(policy.LeastWork{}, 1, func(c *decider.PoolConfig) { c.RetryAfter, c.Lease = time.Second, time.Minute })
	p.Decider.SetRecorder(rec)
	if !p.RecordsText() {
		t.Fatal("prompts are not hashed")
	}
	last := func() decider.Ended {
		t.Helper()
		if len(rec.list) != 1 {
			t.Fatalf("%d records, want 1: %+v", len(rec.list), rec.list)
		}
		e := rec.list[0]
		rec.list = nil
		return e
	}
	_, id := p.Send(decidertest.Document(1, 4, 10))
	p.Clock.Advance(time.Second)
	p.FirstToken(id, []byte("r0"))
	p.Clock.Advance(2 * time.Second)
	p.Finished(decider.Outcome{ID: id, Server: []byte("r0"), Status: 200, Bytes: 11 * 224})
	if e := last(); e.Outcome != "served" || e.At != 0 || e.TTFT != time.Second || e.Lasted != 3*time.Second || len(e.Blocks) != 4 || e.BlockTokens != 256 || e.Output != 10 {
		t.Errorf("served: %+v", e)
	}
	_, id = p.Send(decidertest.Document(2, 4, 10))
	p.Clock.Advance(2 * time.Minute)
	p.Decider.Sweep()
	if e := last(); e.Outcome != "expired" || len(e.Blocks) != 4 || e.Output != -1 {
		t.Errorf("expired: %+v", e)
	}
	p.End(id, "r0") // too late
	p.Send(decidertest.Document(3, 1, 0))
	p.Discovered([]decider.ReplicaState{{Name: "r0", Weight: 1}})
	rec.list = nil
	if d, _ := p.Send(decidertest.Document(4, 2, 0)); d.Status != 503 {
		t.Fatalf("%+v", d)
	}
	if e := last(); e.Outcome != decider.Shed || e.Status != 503 || len(e.Blocks) != 2 {
		t.Errorf("refused: %+v", e)
	}
	p.Apply(func(c *decider.PoolConfig) { c.RetryAfter = 0 })
	_, id = p.Send(decidertest.Document(5, 3, 0)) // the proxy may know better
	p.End(id, "r0")
	if e := last(); e.Outcome != "served" || len(e.Blocks) != 3 {
		t.Errorf("placed by the proxy: %+v", e)
	}
	_, id = p.Send(decidertest.Document(6, 3, 0))
	p.Finished(decider.Outcome{ID: id, End: decider.ClientGone})
	if e := last(); e.Outcome != "client_gone" || len(e.Blocks) != 3 {
		t.Errorf("gone: %+v", e)
	}
	p.Decider.SetRecorder(nil)
	if p.RecordsText() {
		t.Error("prompts are hashed for nobody")
	}
}

// The length of answers is learned from engines that count their output tokens.
func TestAnswersAreLearned(t *testing.T) {
	rec := &tape{}
	p := decidertest.New(policy.LeastWork{}, 1)
	p.Decider.SetRecorder(rec)
	e := p.Engine("r0")
	for range 400 {
		for range 32 {
			_, id := p.Send(decidertest.Document(1, 1, 0))
			p.FirstToken(id, []byte("r0"))
			p.Finished(decider.Outcome{ID: id, Server: []byte("r0"), Status: 200, Bytes: 101 * 224})
		}
		e.FirstTokens(32)
		e.Generated(32 * 300) // three tokens in each event
		e.Prompts(32*256, 0, 0)
	}
	if got := rec.list[0].Output; got != 100 {
		t.Errorf("at first %d tokens, want 100", got)
	}
	if got := rec.list[len(rec.list)-1].Output; got < 285 || got > 315 {
		t.Errorf("at last %d tokens, want 300", got)
	}
}
