package replay

import (
	"time"

	"pointsman/decider"
	"pointsman/sim"
)

// report sends a proxy's report about f to its agent, after the feedback delay.
func (s *simulation) report(kind eventKind, f *flight) {
	if f.agent == nil || s.o.Events.lost(s.now) {
		return
	}
	if kind == eventFirstToken {
		if s.o.Poll > 0 {
			s.firstTokens[f.replica]++
		}
		if s.o.Poll > 0 || s.o.NoFirstToken || !f.request.Stream {
			return
		}
	}
	e := event{at: s.now + s.o.FeedbackDelay, kind: kind, flight: f}
	if s.o.FeedbackDelay == 0 {
		s.handle(e)
		return
	}
	s.events.push(e)
}

// handle processes an event that is due now.
func (s *simulation) handle(e event) {
	a := e.agent
	if a == nil && e.flight != nil {
		a = e.flight.agent
	}
	switch f := e.flight; e.kind {
	case eventConnected:
		a.pool.Connected(f.id, s.nameBytes[f.replica])
	case eventFirstToken:
		a.pool.FirstToken(f.id, s.nameBytes[f.replica])
		s.router.began(f)
	case eventFinished:
		a.pool.Finished(s.outcome(f))
		s.router.began(f)
	case eventShared:
		a.decider.ApplyEvent(e.from, e.shared)
	case eventSilent:
		s.silent()
	case eventHealed:
		for _, a := range s.agents {
			a.decider.PublishAll()
		}
	case eventChange:
		s.change(&s.o.Events.Changes[e.replica])
	case eventMoved:
		s.moved(f)
	case eventPoll:
		s.poll(e.replica)
		s.events.push(event{at: e.at + s.pollEvery(e.replica), kind: eventPoll, replica: e.replica})
	case eventScrape:
		s.scrape(e.replica)
		s.events.push(event{at: e.at + s.o.Metrics, kind: eventScrape, replica: e.replica})
	case eventDispatch:
		for _, a := range s.agents {
			a.decider.Dispatch()
		}
		s.events.push(event{at: e.at + dispatchEvery, kind: eventDispatch})
	case eventSweep:
		for _, a := range s.agents {
			a.decider.Sweep()
		}
		s.events.push(event{at: e.at + time.Second, kind: eventSweep})
	case eventDeath:
		s.kill(e.replica)
	case eventHealth:
		for _, a := range s.agents {
			a.pool.Discovered([]decider.ReplicaState{{Name: s.names[e.replica], Weight: 1}})
		}
	}
}

// kill ends replica k and all requests that it has.
func (s *simulation) kill(k int) {
	if s.dead[k] {
		return
	}
	s.dead[k] = true
	s.schedule(k)
	s.engines[k].Jobs(func(j *sim.Job, _ bool) { s.end(j.Owner.(*flight), flightFailed) })
}

// outcome is the proxy's report of the end of f.
func (s *simulation) outcome(f *flight) decider.Outcome {
	o := decider.Outcome{ID: f.id, Redispatched: f.redirected}
	if f.replica >= 0 {
		o.Server = s.nameBytes[f.replica]
	}
	switch {
	case f.began && f.request.Stream:
		o.TTFT = f.first - f.at
	case f.began:
		o.TTFT = f.done - f.at
	}
	if f.state == flightFailed {
		o.End = decider.Died
	}
	return o
}

// poll reports engine k's count of first tokens since the last poll.
func (s *simulation) poll(k int) {
	if s.dead[k] {
		return
	}
	s.agents[0].pool.Engine(s.names[k]).FirstTokens(s.firstTokens[k])
	s.firstTokens[k] = 0
}

// throughput is the rate at which an engine has ended requests over the last
// second or more.
type throughput struct {
	at       time.Duration // of the last update
	finished uint64        // then
	rate     float64       // requests/s
}

// scrape reports engine k's gauges to the agents.
func (s *simulation) scrape(k int) {
	if s.dead[k] {
		return
	}
	stats, t := s.engines[k].Stats(), &s.throughput[k]
	if passed := s.now - t.at; passed >= time.Second {
		t.rate = float64(stats.Finished-t.finished) / passed.Seconds()
		t.at, t.finished = s.now, stats.Finished
	}
	signals := decider.Signals{
		Waiting: stats.Waiting, Running: stats.Running, KVUsage: stats.KVUsage(), Throughput: t.rate,
	}
	for _, a := range s.agents {
		a.pool.Engine(s.names[k]).Signals(signals)
	}
}
