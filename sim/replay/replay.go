package replay

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"pointsman/decider"
	"pointsman/sim"
	"pointsman/sim/trace"
)

// Setup is a fleet of replicas.
type Setup struct {
	Replicas    int
	Profile     sim.Profile
	CacheTokens int // KV cache of each replica
	// Speeds are the replicas' speeds in multiples of the profile's, repeated
	// over the replicas in turn. None: all 1.
	Speeds []float64
}

// Options describe one run of a trace through one policy.
type Options struct {
	Setup
	Rate float64 // mean requests/s
	Seed uint64
	// Policy makes an instance of the policy; each agent has its own.
	Policy     func() (decider.Policy, error)
	PolicyName string
	// Admission lets requests wait in the agent; nil = they are sent at once.
	Admission *decider.Admission

	// FeedbackDelay is how late the agent hears what the proxy tells.
	FeedbackDelay time.Duration
	// NoFirstToken: the agent hears of a first token only at the request's end.
	NoFirstToken bool
	// Metrics, unless 0, is the pause between two looks at what each engine
	// says of its queue and cache.
	Metrics time.Duration
	// Poll, unless 0, is the pause between two looks at each engine's count of
	// first tokens, which then stands for the proxy's own word of them.
	Poll time.Duration
	// Agents decide in turn and know nothing of one another. 0 = 1.
	Agents int
	// MirrorScale is what the agent takes the cache size for, in multiples of
	// the real one. 0 = 1.
	MirrorScale float64
	// TokenNoise is the greatest relative error of the agent's prompt tokens,
	// drawn evenly from both sides for each request.
	TokenNoise float64
	// Failures are replicas that die, in any order.
	Failures []Failure

	// Ended, unless nil, counts the requests that have ended.
	Ended *atomic.Int64
}

// Failure is the death of a replica, for good.
type Failure struct {
	At      time.Duration // since the first request
	Replica int
}

// poolName is the one pool of a replay.
const poolName = "pool"

// healthDelay is how long it takes until the proxy has marked a dead replica
// and its agents know: three checks 2 s apart are missed.
const healthDelay = 5 * time.Second

// Validate tells what makes the setup unusable.
func (s *Setup) Validate() error {
	if s.Replicas < 1 || s.Replicas > 4096 {
		return fmt.Errorf("%d replicas, want 1 to 4096", s.Replicas)
	}
	for _, x := range s.Speeds {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("a replica at %v times its speed, want above 0", x)
		}
	}
	return s.Profile.Validate()
}

func (o *Options) validate() error {
	if err := o.Setup.Validate(); err != nil {
		return err
	}
	for _, f := range o.Failures {
		if f.Replica < 0 || f.Replica >= o.Replicas {
			return fmt.Errorf("failure of replica %d, want 0 to %d", f.Replica, o.Replicas-1)
		}
	}
	switch {
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return fmt.Errorf("a rate of %v requests/s, want above 0", o.Rate)
	case o.Agents < 0 || o.Agents > 1024:
		return fmt.Errorf("%d agents, want 1 to 1024", o.Agents)
	case !(o.MirrorScale > 0 && o.MirrorScale <= 1000):
		return fmt.Errorf("a mirror scale of %v, want above 0 to 1000", o.MirrorScale)
	case o.FeedbackDelay < 0:
		return fmt.Errorf("a feedback delay of %v, want 0 or more", o.FeedbackDelay)
	case o.Poll != 0 && o.Poll < time.Millisecond || o.Metrics != 0 && o.Metrics < time.Millisecond:
		return errors.New("a look at engines more often than every millisecond")
	case !(o.TokenNoise >= 0 && o.TokenNoise < 1):
		return fmt.Errorf("a token noise of %v, want 0 to below 1", o.TokenNoise)
	case o.Poll > 0 && (o.NoFirstToken || o.Agents > 1):
		return errors.New("polling for first tokens, yet hearing of none or not knowing whose they are")
	}
	return nil
}

// engines makes the fleet.
func (s *Setup) engines(blockTokens int) ([]*sim.Engine, error) {
	fleet := make([]*sim.Engine, s.Replicas)
	for i := range fleet {
		var err error
		fleet[i], err = sim.NewEngine(sim.EngineOptions{
			Profile: s.Profile.Scale(s.speed(i)), BlockSize: blockTokens, CacheTokens: s.CacheTokens,
		})
		if err != nil {
			return nil, err
		}
	}
	return fleet, nil
}

func (s *Setup) speed(i int) float64 {
	if len(s.Speeds) == 0 {
		return 1
	}
	return s.Speeds[i%len(s.Speeds)]
}

// flight is one request on its way.
type flight struct {
	job     sim.Job
	call    *trace.Request
	at      time.Duration // arrival
	first   time.Duration // first token
	done    time.Duration // end
	id      decider.ID
	agent   *agent
	replica int
	moved   bool // the chosen replica did not take it
	state   flightState
	began   bool // it had its first token, though it may have ended since
}

type flightState uint8

const (
	flightWaits flightState = iota
	flightStreams
	flightServed
	flightFailed  // its replica died
	flightShed    // by the admission
	flightRefused // larger than a replica's cache, or no replica left
)

// playback is one run.
type playback struct {
	o          *Options
	now        time.Duration
	fleet      []*sim.Engine
	next       []time.Duration // when each engine's step ends; never when idle
	dead       []bool
	shared     bool // one cache and one queue
	agents     []*agent
	flights    []flight
	news       newsQueue
	chance     *rand.Rand
	ended      int
	load       loadMeter
	firsts     []int        // first tokens of each engine since the last poll
	throughput []throughput // of each engine
	replicas   []string     // their names
	names      [][]byte     // the same
	byName     map[string]int
	bound      []*holding // requests that are held no more
	asked      int        // decisions
	turn       int        // where a proxy without a decision sends its next request
}

// releaseEvery is how often an agent looks at its clock for what it holds.
const releaseEvery = 20 * time.Millisecond

const never = time.Duration(math.MaxInt64)

// Replay runs the trace through the policy and returns what came of it. Equal
// arguments give equal results. Replays may run at the same time, also of the
// same trace.
func Run(t *trace.Trace, o Options) (*Result, error) {
	p, err := play(t, &o)
	if err != nil {
		return nil, err
	}
	return p.result(o.PolicyName), nil
}

// play runs a playback with agents to its end.
func play(t *trace.Trace, o *Options) (*playback, error) {
	p, err := newPlayback(t, o)
	if err != nil {
		return nil, err
	}
	for i := range o.Agents {
		a, err := newAgent(p, t.BlockTokens, i)
		if err != nil {
			return nil, err
		}
		p.agents = append(p.agents, a)
	}
	p.every(o.Poll, newsPoll)
	p.every(o.Metrics, newsScrape)
	for _, f := range o.Failures {
		p.news.push(news{at: f.At, kind: newsDeath, n: f.Replica})
		p.news.push(news{at: f.At + healthDelay, kind: newsHealth, n: f.Replica})
	}
	if o.Admission != nil {
		p.news.push(news{at: releaseEvery, kind: newsRelease})
	}
	p.news.push(news{at: time.Second, kind: newsSweep})
	p.run(p.decide)
	return p, nil
}

// every has each engine looked at every pause, one after the other.
func (p *playback) every(pause time.Duration, kind newsKind) {
	if pause == 0 {
		return
	}
	for i := range p.fleet {
		p.news.push(news{at: pause * time.Duration(i+1) / time.Duration(len(p.fleet)), kind: kind, n: i})
	}
}

func newPlayback(t *trace.Trace, o *Options) (*playback, error) {
	if o.Agents == 0 {
		o.Agents = 1
	}
	if o.MirrorScale == 0 {
		o.MirrorScale = 1
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	fleet, err := o.engines(t.BlockTokens)
	if err != nil {
		return nil, err
	}
	p := &playback{
		o: o, fleet: fleet,
		next: slices.Repeat([]time.Duration{never}, len(fleet)), dead: make([]bool, len(fleet)), firsts: make([]int, len(fleet)), throughput: make([]throughput, len(fleet)),
		chance: rand.New(rand.NewPCG(o.Seed, 0x706c6179)),
	}
	p.byName = make(map[string]int, len(fleet))
	for i := range fleet {
		p.names = append(p.names, []byte(replicaName(i)))
		p.replicas = append(p.replicas, replicaName(i))
		p.byName[p.replicas[i]] = i
	}
	list := t.Arrivals(o.Rate, p.chance)
	p.flights = make([]flight, len(list))
	for i, a := range list {
		f := &p.flights[i]
		f.call, f.at, f.replica = a.Request, a.At, -1
		f.job = sim.Job{Blocks: a.Request.Blocks, Input: a.Request.Input, Output: a.Request.Output, Owner: f}
	}
	p.load = newLoadMeter(list[len(list)-1].At, len(fleet))
	return p, nil
}

// run plays until every request has ended. arrive is called for each request
// at its time. What happens at one time happens in this order: steps of the
// engines, news, arrivals.
func (p *playback) run(arrive func(*flight)) {
	for i := 0; p.ended < len(p.flights); {
		at, engine := never, -1
		for k, next := range p.next {
			if next < at {
				at, engine = next, k
			}
		}
		if n := p.news.at(); n < at {
			at, engine = n, -1
		}
		arrival := i < len(p.flights) && p.flights[i].at < at
		if arrival {
			at = p.flights[i].at
		}
		p.load.upTo(at)
		p.now = at
		switch {
		case arrival:
			arrive(&p.flights[i])
			i++
		case engine >= 0:
			p.step(engine)
		default:
			p.hear(p.news.pop())
		}
		p.sendBound()
	}
}

// step ends the step of an engine that is due now.
func (p *playback) step(k int) {
	for _, ev := range p.fleet[k].Step(p.now) {
		f := ev.Job.Owner.(*flight)
		switch ev.Kind {
		case sim.FirstToken:
			f.first, f.state = p.now, flightStreams
			p.tell(newsFirstToken, f)
		case sim.Finished:
			p.end(f, flightServed)
		}
	}
	p.schedule(k)
	if p.shared {
		p.wakeAll() // what it gave back may let another one start
	}
}

// schedule notes when engine k's step ends.
func (p *playback) schedule(k int) {
	p.next[k] = never
	if at, ok := p.fleet[k].Next(); ok && !p.dead[k] {
		p.next[k] = at
	}
}

// end ends f.
func (p *playback) end(f *flight, how flightState) {
	f.began = f.state == flightStreams
	f.state, f.done = how, p.now
	p.ended++
	p.load.ended(f.replica)
	if p.o.Ended != nil {
		p.o.Ended.Add(1)
	}
	p.tell(newsFinished, f)
}
