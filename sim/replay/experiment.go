package replay

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/sim/trace"
)

// Experiment compares policies on one trace.
type Experiment struct {
	// Options apply to all policies. Policy, PolicyName and Admission are set
	// from Policies. Seed is the first seed.
	Options
	// Load sets the rate, unless that is given, in multiples of Saturation.
	Load     float64
	Recorded *trace.Recorded // what was measured, to be shown beside; nil = nothing
	Policies []Policy
	// Baseline is the policy that the others are compared with; nil for none.
	Baseline *Policy
	// Splits are numbers of replicas that only compute prompts: each policy is run with
	// each of them too.
	Splits []int
	Shed   bool // requests that wait in an agent are refused as in production
	Seeds  int  // replays of each policy
}

// Comparison is the result of an Experiment.
type Comparison struct {
	Setup
	Requests         int
	Rate, Saturation float64     // requests/s
	Results          [][]*Result // by policy and seed
	Baseline         []*Result   // by seed; nil if there is none
	SLO              SLO
	Recorded         *trace.Recorded
	Split            bool // some results are with replicas that only compute prompts
}

// Run runs each policy with each seed, as many replays at a time as there are
// processors. It shows its progress on terminal, if that is one.
func (e *Experiment) Run(t *trace.Trace, terminal *os.File) (*Comparison, error) {
	if e.Seeds < 1 || !(e.Load > 0) || e.Rate < 0 {
		return nil, errors.New("want at least 1 seed, a load above 0, and no negative numbers")
	}
	saturation, err := Saturation(t, e.Setup)
	if err != nil {
		return nil, err
	}
	base := e.Options
	if base.Rate == 0 {
		base.Rate = e.Load * saturation
	}
	var ended atomic.Int64
	base.Ended = &ended
	policies := e.split()
	shown := len(policies)
	baseline := -1
	if e.Baseline != nil {
		baseline = slices.IndexFunc(policies, func(p Policy) bool { return p.Name == e.Baseline.Name && p.Prefill == e.Baseline.Prefill })
		if baseline < 0 {
			baseline = len(policies)
			policies = append(policies, *e.Baseline)
		}
	}
	results := make([][]*Result, len(policies))
	errs := make([]error, len(policies)*e.Seeds)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, p := range policies {
		results[i] = make([]*Result, e.Seeds)
		for seed := range e.Seeds {
			o := base
			o.Policy, o.PolicyName, o.Seed, o.Prefill = p.New, p.Name, e.Seed+uint64(seed), p.Prefill
			o.Admission, o.RouterQueue = p.Admission(e.Shed), p.Queue
			run := Run
			switch {
			case p.Name == LowerBound:
				run = RunBound
			case p.New == nil:
				run = RunShared
			}
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				var err error
				if results[i][seed], err = run(t, o); err != nil {
					errs[i*e.Seeds+seed] = &policyError{p.Name, err}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	showProgress(terminal, &ended, int64(len(t.Requests)*len(errs)), done)
	if err := joined(errs); err != nil {
		return nil, err
	}
	base.setDefaults()
	c := &Comparison{
		Setup: e.Setup, Requests: len(t.Requests), Rate: base.Rate, Saturation: saturation,
		Results: results[:shown], Split: len(e.Splits) > 0, SLO: base.SLO, Recorded: e.Recorded,
	}
	if baseline >= 0 {
		c.Baseline = results[baseline]
	}
	return c, nil
}

// policyError is the error of a run with a policy.
type policyError struct {
	policy string
	err    error
}

// Error names the policy.
func (e *policyError) Error() string { return e.policy + ": " + e.err.Error() }

// Unwrap is the error of the run.
func (e *policyError) Unwrap() error { return e.err }

// joined is the error of all runs. What they all have in common is said once.
func joined(errs []error) error {
	all := errors.Join(errs...)
	first, ok := errors.AsType[*policyError](all)
	if !ok || slices.ContainsFunc(errs, func(err error) bool { return err == nil || errors.Unwrap(err).Error() != first.err.Error() }) {
		return all
	}
	return first.err
}

// Load is the rate in multiples of the saturation.
func (c *Comparison) Load() float64 { return c.Rate / c.Saturation }

// First returns the results of the first seed, by policy.
func (c *Comparison) First() []*Result {
	list := make([]*Result, len(c.Results))
	for i := range c.Results {
		list[i] = c.Results[i][0]
	}
	return list
}

// ParseFailures reads failures in the form 60s@3: the time since the first
// request, and the replica.
func ParseFailures(specs []string) ([]Failure, error) {
	var list []Failure
	for _, spec := range specs {
		at, replica, _ := strings.Cut(spec, "@")
		when, err := time.ParseDuration(at)
		n, err2 := strconv.Atoi(replica)
		if err != nil || err2 != nil || when < 0 {
			return nil, fmt.Errorf("fail: %q, want a time and a replica as 60s@3", spec)
		}
		list = append(list, Failure{At: when, Replica: n})
	}
	return list, nil
}
