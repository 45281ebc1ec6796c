package replay

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseEvents(t *testing.T) {
	got, err := ParseEvents([]string{"slow@1500s:r3:0.33", "leave@10m:r0", "join@0s:r12", "feedback-lost=5s/60s", "foreign=0.3"})
	want := Events{
		Changes: []ReplicaChange{{1500 * time.Second, 3, Slow, 0.33}, {10 * time.Minute, 0, Leave, 1}, {0, 12, Join, 1}},
		LostFor: 5 * time.Second, LostEvery: time.Minute, Foreign: 0.3,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v: %v", got, err)
	}
	for _, spec := range []string{
		"", "slow", "slow@1s:r3", "slow@1s:r3:0", "slow@1s:3:0.5", "slow@x:r3:0.5", "slow@1s:r3:NaN", "leave@1s", "leave@1s:r1:2", "leave@-1s:r1", "die@1s:r1",
		"feedback-lost=5s", "feedback-lost=9s/5s", "feedback-lost=0s/5s", "foreign=1", "foreign=-1", "foreign=NaN", "foreign=",
	} {
		if _, err := ParseEvents([]string{spec}); err == nil || !strings.Contains(err.Error(), "want slow@1500s:r3:0.33, ") {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// runEvents replays a small trace with events and returns the simulation.
func runEvents(t *testing.T, change func(*Options), specs ...string) *simulation {
	t.Helper()
	o := smallOptions()
	var err error
	if o.Events, err = ParseEvents(specs); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	s, err := simulate(smallTrace(400), &o)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.result(""); r.Failed+r.Refused+r.Shed > 0 {
		t.Errorf("%v: %d failed, %d refused, %d shed", specs, r.Failed, r.Refused, r.Shed)
	}
	return s
}

// sentTo counts the requests that came from to until and that replica k served.
func sentTo(s *simulation, k int, from, until time.Duration) (n int) {
	for i := range s.flights {
		if f := &s.flights[i]; f.replica == k && f.at >= from && f.at < until {
			n++
		}
	}
	return n
}

// TestLeaveAndJoin: a replica gets requests only while it is there.
func TestLeaveAndJoin(t *testing.T) {
	s := runEvents(t, nil, "leave@3s:r1", "join@5s:r2")
	for k, want := range [][2]bool{{true, true}, {true, false}, {false, true}, {true, true}} {
		if before, after := sentTo(s, k, 0, 3*time.Second), sentTo(s, k, 5*time.Second, never); before > 0 != want[0] || after > 0 != want[1] {
			t.Errorf("r%d: %d requests at first, %d at the end", k, before, after)
		}
	}
	o := smallOptions()
	o.Events, _ = ParseEvents([]string{"leave@3s:r4"})
	if _, err := Run(smallTrace(1), o); err == nil || !strings.Contains(err.Error(), "event of replica r4, want r0 to r3") {
		t.Error(err)
	}
}

// TestSlow: a replica that becomes slower takes longer, from then on.
func TestSlow(t *testing.T) {
	took := func(s *simulation, from, until time.Duration) (sum time.Duration) {
		for i := range s.flights {
			if f := &s.flights[i]; f.replica == 1 && f.at >= from && f.at < until {
				sum += (f.done - f.first) / time.Duration(f.request.Output)
			}
		}
		return sum / time.Duration(sentTo(s, 1, from, until))
	}
	plain, slow := runEvents(t, nil), runEvents(t, nil, "slow@4s:r1:0.25")
	if before, after := took(slow, 0, 3*time.Second), took(slow, 4*time.Second, never); after < 3*before {
		t.Errorf("%v per token before, %v after", before, after)
	}
	if a, b := took(plain, 0, 3*time.Second), took(slow, 0, 3*time.Second); a != b {
		t.Errorf("%v per token before the event, %v without it", b, a)
	}
}

// TestFeedbackLost: no end is reported to the agent in the last seconds of each period.
func TestFeedbackLost(t *testing.T) {
	s := runEvents(t, nil, "feedback-lost=500ms/2s")
	lost := 0
	for i := range s.flights {
		if f := &s.flights[i]; f.done%(2*time.Second) >= 1500*time.Millisecond {
			lost++
		}
	}
	if left := s.agents[0].pool.Status().Reservations; left != lost || lost < 40 || lost > 200 {
		t.Errorf("%d reservations left, %d ends lost", left, lost)
	}
}

// TestForeign: foreign requests load the replicas and are in no result.
func TestForeign(t *testing.T) {
	s := runEvents(t, nil, "foreign=0.3")
	foreign := 0
	for i := range s.flights {
		f := &s.flights[i]
		if f.foreign != (f.agent == nil) || f.replica < 0 {
			t.Fatalf("%+v", f)
		}
		if f.foreign {
			foreign++
		}
	}
	if r := s.result(""); len(r.TTFT) != 400-foreign || foreign < 80 || foreign > 160 || r.Goodput != 1 {
		t.Errorf("%d foreign, %d served, goodput %v", foreign, len(r.TTFT), r.Goodput)
	}
}

// TestShare: agents that share at once know all requests in flight; those that
// share nothing only their own.
func TestShare(t *testing.T) {
	demand := make([][]float64, 3) // by agent, without and with sharing
	for _, share := range []time.Duration{0, time.Millisecond} {
		s := runEvents(t, func(o *Options) { o.Agents, o.Share = 3, share })
		most := func(a *agent) int { return int(a.pool.Status().Decisions) }
		if n := most(s.agents[0]); n != 134 {
			t.Errorf("agent 0 decided %d times", n)
		}
		for s.events.next() < never && (s.events.heap[0].flight != nil || s.events.heap[0].shared != nil) {
			e := s.events.pop()
			s.now = e.at
			s.handle(e)
		}
		for i, a := range s.agents {
			if left := a.pool.Status().Reservations; left != 0 {
				t.Errorf("share %v: agent %d has %d reservations left", share, i, left)
			}
			demand[i] = append(demand[i], a.pool.Autoscale().Demand)
		}
	}
	for i, d := range demand {
		if ratio := d[1] / d[0]; ratio < 2.5 || ratio > 3.5 {
			t.Errorf("agent %d sees %.2f times the demand", i, ratio)
		}
	}
}

// TestPartition: agents that were cut off from each other know the same again, and
// no request stays reserved.
func TestPartition(t *testing.T) {
	s := runEvents(t, func(o *Options) {
		o.Agents, o.Share, o.Partition = 3, 5*time.Millisecond, Partition{At: time.Second, For: 3 * time.Second}
	})
	for s.events.next() < never && (s.events.heap[0].flight != nil || s.events.heap[0].shared != nil) {
		e := s.events.pop()
		s.now = e.at
		s.handle(e)
	}
	for i, a := range s.agents {
		if left := a.pool.Status().Reservations; left != 0 {
			t.Errorf("agent %d has %d reservations left", i, left)
		}
	}
	for spec, want := range map[string]bool{"": true, "30s@600s": true, "30s": false, "-1s@5s": false, "1s@-5s": false, "x@y": false, "0s@1s": false} {
		if _, err := ParsePartition(spec); (err == nil) != want {
			t.Errorf("%q: %v", spec, err)
		}
	}
	o := smallOptions()
	o.Partition = Partition{For: time.Second}
	if _, err := Run(smallTrace(1), o); err == nil {
		t.Error("a partition of one agent")
	}
}
