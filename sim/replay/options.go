package replay

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"pointsman/decider"
	"pointsman/sim"
)

// Setup is a set of replicas.
type Setup struct {
	Replicas    int
	Profile     sim.Profile
	CacheTokens int // KV cache of each replica
	// CPUCacheTokens and TransferSpeed are those of sim.EngineOptions.
	CPUCacheTokens int
	TransferSpeed  float64
	// Speeds are the replicas' speeds as multiples of the profile's. A shorter
	// list repeats; an empty one means 1 for all.
	Speeds []float64
	// Prefill is how many of the replicas, the first ones, only compute prompts, for the
	// others; 0 = all do both. Transfer is the speed at which each of them sends KV
	// caches, in bytes/s.
	Prefill  int
	Transfer float64
}

// Options describe one replay of a trace with one policy.
type Options struct {
	Setup
	Rate float64 // mean requests/s
	Seed uint64
	// Policy makes an instance of the policy; each agent has its own.
	Policy     func() (decider.Policy, error)
	PolicyName string
	// Admission lets requests wait in the agent. nil sends them at once.
	Admission *decider.Admission
	// RouterQueue lets requests wait for a decision as Dynamo's router does; nil decides
	// at once.
	RouterQueue *RouterQueue

	// FeedbackDelay is the delay of the proxy's reports to the agent.
	FeedbackDelay time.Duration
	// NoFirstToken: the agent learns of first tokens only when requests end.
	NoFirstToken bool
	// Metrics is the interval at which agents scrape each engine's queue and
	// cache gauges; 0 disables it.
	Metrics time.Duration
	// Poll is the interval at which the agent reads each engine's count of
	// first tokens, in place of the proxy's reports; 0 disables it.
	Poll time.Duration
	// Agents decide in turn. 0 means 1.
	Agents int
	// CacheScale is the cache size that agents assume, as a multiple of the
	// real one. 0 means 1.
	CacheScale float64
	// TokenNoise is the largest relative error of an agent's prompt token
	// counts, uniformly distributed.
	TokenNoise float64
	// MaxTokens is the max_tokens of every request, in place of the trace's; 0
	// leaves it.
	MaxTokens int
	// SLO is the objective of Result.Goodput; zero means DefaultSLO.
	SLO SLO
	// Share is the delay with which agents apply each other's reservations and
	// outcomes; 0 means that they share nothing.
	Share     time.Duration
	Partition Partition
	Events    Events
	// Failures are replicas that die, in any order.
	Failures []Failure

	// Ended, unless nil, counts the requests that have ended.
	Ended *atomic.Int64
}

// Failure is the permanent death of a replica.
type Failure struct {
	At      time.Duration // since the first request
	Replica int
}

// Validate returns an error that says why the setup is unusable.
func (s *Setup) Validate() error {
	if s.Replicas < 1 || s.Replicas > 4096 {
		return fmt.Errorf("%d replicas, want 1 to 4096", s.Replicas)
	}
	for _, x := range s.Speeds {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("a replica speed of %v, want above 0", x)
		}
	}
	if s.Prefill < 0 || s.Prefill > 0 && (s.Prefill >= s.Replicas || !(s.Transfer > 0)) {
		return fmt.Errorf("%d of %d replicas for prefill, and a transfer of %v bytes/s: want some for both, and more than 0 bytes/s", s.Prefill, s.Replicas, s.Transfer)
	}
	return s.Profile.Validate()
}

func (o *Options) setDefaults() {
	if o.SLO == (SLO{}) {
		o.SLO = DefaultSLO
	}
	if o.Agents == 0 {
		o.Agents = 1
	}
	if o.CacheScale == 0 {
		o.CacheScale = 1
	}
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
	if err := o.Events.validate(o.Replicas); err != nil {
		return err
	}
	switch {
	case o.Prefill > 0 && (len(o.Failures) > 0 || o.Events.any()):
		return errors.New("replicas for prefill together with failures or events: that is not modelled")
	case o.RouterQueue != nil && (o.Agents > 1 || o.Prefill > 0 || o.Poll > 0 || o.Events.LostFor > 0 || o.Admission != nil):
		return errors.New("a router queue together with several agents, replicas for prefill, polling, lost reports or late binding: that is not modelled")
	case o.Partition.For > 0 && (o.Share == 0 || o.Agents < 2):
		return errors.New("a partition of agents that share nothing: want several agents and a sharing delay")
	case o.Share < 0:
		return fmt.Errorf("a sharing delay of %v, want 0 or more", o.Share)
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return fmt.Errorf("a rate of %v requests/s, want above 0", o.Rate)
	case o.Agents < 0 || o.Agents > 1024:
		return fmt.Errorf("%d agents, want 1 to 1024", o.Agents)
	case !(o.CacheScale > 0 && o.CacheScale <= 1000):
		return fmt.Errorf("a mirror scale of %v, want above 0 to 1000", o.CacheScale)
	case o.FeedbackDelay < 0:
		return fmt.Errorf("a feedback delay of %v, want 0 or more", o.FeedbackDelay)
	case o.Poll != 0 && o.Poll < time.Millisecond || o.Metrics != 0 && o.Metrics < time.Millisecond:
		return errors.New("a poll or metrics interval below 1ms")
	case o.MaxTokens < 0:
		return fmt.Errorf("max_tokens of %d, want 0 or more", o.MaxTokens)
	case !(o.TokenNoise >= 0 && o.TokenNoise < 1):
		return fmt.Errorf("a token noise of %v, want 0 to below 1", o.TokenNoise)
	case o.Poll > 0 && (o.NoFirstToken || o.Agents > 1):
		return errors.New("polling for first tokens does not work with several agents or without first tokens")
	}
	return nil
}

// engines makes the engines of the setup.
func (s *Setup) engines(blockTokens int) ([]*sim.Engine, error) {
	engines := make([]*sim.Engine, s.Replicas)
	for i := range engines {
		var err error
		engines[i], err = sim.NewEngine(sim.EngineOptions{
			Profile: s.Profile.Scale(s.speed(i)), BlockSize: blockTokens, CacheTokens: s.CacheTokens,
			CPUCacheTokens: s.CPUCacheTokens, TransferSpeed: s.TransferSpeed,
		})
		if err != nil {
			return nil, err
		}
	}
	return engines, nil
}

func (s *Setup) speed(i int) float64 {
	if len(s.Speeds) == 0 {
		return 1
	}
	return s.Speeds[i%len(s.Speeds)]
}
