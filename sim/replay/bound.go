package replay

import (
	"time"

	"pointsman/sim"
	"pointsman/sim/trace"
)

// RunBound computes the times that no policy can go below: each request alone
// on the fastest replica as soon as it comes, with everything cached that an
// earlier request had. Options that concern agents and events have no effect.
func RunBound(t *trace.Trace, o Options) (*Result, error) {
	s, err := newSimulation(t, &o)
	if err != nil {
		return nil, err
	}
	fastest, tokens := 0.0, o.CacheTokens
	for i := range s.engines {
		fastest = max(fastest, o.speed(i))
	}
	for i := range s.flights {
		r := s.flights[i].request
		tokens += r.Input + r.Output + 2*t.BlockTokens
	}
	e, err := sim.NewEngine(sim.EngineOptions{Profile: o.Profile.Scale(fastest), BlockSize: t.BlockTokens, CacheTokens: tokens})
	if err != nil {
		return nil, err
	}
	for i := range s.flights {
		f := &s.flights[i]
		s.now = f.at
		s.load.add(-1, 1)
		if s.engines[0].Fits(&f.job) {
			f.first, f.done, err = alone(e, &f.job)
		} else {
			err = sim.ErrTooLarge // as it is for every policy
		}
		if err != nil {
			s.end(f, flightRefused)
			continue
		}
		f.first, f.done = f.at+f.first, f.at+f.done
		s.now, f.state = f.done, flightStreaming
		s.end(f, flightServed)
	}
	s.engines = []*sim.Engine{e}
	return s.result(o.PolicyName), nil
}

// alone runs a job on an idle engine and returns the times to its first and to
// its last token.
func alone(e *sim.Engine, j *sim.Job) (first, last time.Duration, err error) {
	begin, _ := e.Next() // the end of the last step
	if err := e.Submit(begin, j); err != nil {
		return 0, 0, err
	}
	for {
		at, _ := e.Next()
		for _, ev := range e.Step(at) {
			switch ev.Kind {
			case sim.FirstToken:
				first = at - begin
			case sim.Finished:
				return first, at - begin, nil
			}
		}
	}
}
