package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"pointsman/decider"
	"pointsman/sim"
	"pointsman/sim/trace"
)

const (
	// poolName is the name of the only pool of a replay.
	poolName = "pool"
	// healthDelay is the time until the proxy has marked a dead replica as down
	// and its agents know: three failed checks, 2 s apart.
	healthDelay = 5 * time.Second
	// dispatchEvery is how often an agent checks its queue by the clock.
	dispatchEvery = 20 * time.Millisecond

	never = time.Duration(math.MaxInt64)
)

// flight is one request in flight.
type flight struct {
	job        sim.Job
	leg        sim.Job // its prompt, if another replica computes it
	request    *trace.Request
	at         time.Duration // arrival
	first      time.Duration // first token
	done       time.Duration // end
	id         decider.ID
	agent      *agent
	input      int  // the agent's estimate of the prompt tokens
	foreign    bool // it reached the replica without an agent
	replica    int  // -1 before it is sent
	uncached   int  // of its prompt tokens, those that the router counts on the replica
	redirected bool // a replica other than the chosen one serves it
	state      flightState
	began      bool // it had its first token, even if it has ended since
}

type flightState uint8

const (
	flightWaiting flightState = iota
	flightStreaming
	flightServed
	flightFailed  // its replica died
	flightShed    // rejected by the admission
	flightRefused // larger than a replica's cache
)

// simulation is the state of one replay.
type simulation struct {
	o           *Options
	now         time.Duration
	engines     []*sim.Engine
	next        []time.Duration // when each engine's step ends; never if idle
	dead        []bool
	away        []bool // has left, or has not joined yet
	shared      bool   // the engines share one cache and one queue
	agents      []*agent
	flights     []flight
	events      eventQueue
	random      *rand.Rand
	ended       int // flights
	load        loadSampler
	blockTokens int
	links       []time.Duration // until when each replica sends KV caches

	firstTokens []int        // of each engine since the last poll
	throughput  []throughput // of each engine
	names       []string     // of the replicas
	nameBytes   [][]byte     // the same
	byName      map[string]int
	dispatched  []*heldRequest // to be sent
	router      *routerQueue   // nil for none
	decisions   int
	fallback    int // replica of the last request that was sent without a decision
}

// Run replays the trace with the policy. Equal arguments give equal results.
// Replays may run concurrently, also of the same trace.
func Run(t *trace.Trace, o Options) (*Result, error) {
	s, err := simulate(t, &o)
	if err != nil {
		return nil, err
	}
	return s.result(o.PolicyName), nil
}

// simulate runs a simulation with agents to its end.
func simulate(t *trace.Trace, o *Options) (*simulation, error) {
	s, err := newSimulation(t, o)
	if err != nil {
		return nil, err
	}
	for i := range o.Agents {
		a, err := newAgent(s, t.BlockTokens, i)
		if err != nil {
			return nil, err
		}
		s.agents = append(s.agents, a)
	}
	s.pollEngines(o.Poll, eventPoll)
	s.pollEngines(o.Metrics, eventScrape)
	s.scheduleChanges()
	s.pollPrefill()
	for _, f := range o.Failures {
		s.events.push(event{at: f.At, kind: eventDeath, replica: f.Replica})
		s.events.push(event{at: f.At + healthDelay, kind: eventHealth, replica: f.Replica})
	}
	if o.Admission != nil {
		s.events.push(event{at: dispatchEvery, kind: eventDispatch})
	}
	s.schedulePartition()
	s.events.push(event{at: time.Second, kind: eventSweep})
	s.run(s.decide)
	return s, nil
}

// pollEngines schedules the first poll of each engine, spread over the interval.
func (s *simulation) pollEngines(interval time.Duration, kind eventKind) {
	if interval == 0 {
		return
	}
	for i := range s.engines {
		s.events.push(event{at: interval * time.Duration(i+1) / time.Duration(len(s.engines)), kind: kind, replica: i})
	}
}

func newSimulation(t *trace.Trace, o *Options) (*simulation, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	engines, err := o.engines(t.BlockTokens)
	if err != nil {
		return nil, err
	}
	n := len(engines)
	s := &simulation{
		o: o, engines: engines, blockTokens: t.BlockTokens,
		next: slices.Repeat([]time.Duration{never}, n), dead: make([]bool, n), away: make([]bool, n),
		links: make([]time.Duration, n), firstTokens: make([]int, n), throughput: make([]throughput, n),
		random: rand.New(rand.NewPCG(o.Seed, 0x706c6179)), byName: make(map[string]int, n),
	}
	for i := range engines {
		name := replicaName(i)
		s.names, s.nameBytes = append(s.names, name), append(s.nameBytes, []byte(name))
		s.byName[name] = i
	}
	list := t.Arrivals(o.Rate, s.random)
	s.flights = make([]flight, len(list))
	for i, a := range list {
		f := &s.flights[i]
		f.request, f.at, f.replica = a.Request, a.At, -1
		f.job = sim.Job{Blocks: a.Request.Blocks, Input: a.Request.Input, Output: a.Request.Output, Owner: f}
	}
	s.router = newRouterQueue(s)
	s.load = newLoadSampler(list[len(list)-1].At, n)
	return s, nil
}

// run runs until every request has ended and calls arrive for each request at
// its time. At equal times, engine steps come first, then events, then
// arrivals.
func (s *simulation) run(arrive func(*flight)) {
	for i := 0; s.ended < len(s.flights); {
		at, engine := never, -1
		for k, next := range s.next {
			if next < at {
				at, engine = next, k
			}
		}
		if next := s.events.next(); next < at {
			at, engine = next, -1
		}
		arrival := i < len(s.flights) && s.flights[i].at < at
		if arrival {
			at = s.flights[i].at
		}
		s.load.advance(at)
		s.now = at
		switch {
		case arrival:
			arrive(&s.flights[i])
			i++
		case engine >= 0:
			s.step(engine)
		default:
			s.handle(s.events.pop())
		}
		s.sendDispatched()
		s.router.drain()
	}
}

// step ends the step of engine k that is due now.
func (s *simulation) step(k int) {
	for _, ev := range s.engines[k].Step(s.now) {
		f := ev.Job.Owner.(*flight)
		if ev.Job == &f.leg {
			if ev.Kind == sim.Finished {
				s.transfer(k, f)
			}
			continue
		}
		switch ev.Kind {
		case sim.FirstToken:
			f.first, f.state = s.now, flightStreaming
			s.report(eventFirstToken, f)
		case sim.Finished:
			s.end(f, flightServed)
		}
	}
	s.schedule(k)
	if s.shared {
		s.wakeAll() // the memory it freed may let another one start
	}
}

// schedule records when engine k's step ends.
func (s *simulation) schedule(k int) {
	s.next[k] = never
	if at, ok := s.engines[k].Next(); ok && !s.dead[k] {
		s.next[k] = at
	}
}

// end ends f.
func (s *simulation) end(f *flight, state flightState) {
	f.began = f.state == flightStreaming
	f.state, f.done = state, s.now
	s.ended++
	s.load.add(f.replica, -1)
	if s.o.Ended != nil {
		s.o.Ended.Add(1)
	}
	s.report(eventFinished, f)
}
