package replay

import (
	"pointsman/sim"
	"pointsman/sim/trace"
)

// RunShared computes a bound that hardly any policy can beat: the replicas
// compute as in Run, but share one cache, and each takes its next request from
// one common queue when it has capacity. Options that concern agents and
// failures have no effect.
func RunShared(t *trace.Trace, o Options) (*Result, error) {
	s, err := newSimulation(t, &o)
	if err != nil {
		return nil, err
	}
	sim.Share(s.engines)
	s.shared = true
	s.run(func(f *flight) {
		s.load.add(-1, 1)
		if err := s.engines[0].Submit(s.now, &f.job); err != nil {
			s.end(f, flightRefused)
			return
		}
		s.wakeAll()
	})
	return s.result(o.PolicyName), nil
}

// wakeAll lets every engine check the common queue, idle engines first.
func (s *simulation) wakeAll() {
	for _, active := range [...]bool{false, true} {
		for k, e := range s.engines {
			if _, busy := e.Next(); busy == active {
				e.Wake(s.now)
				s.schedule(k)
			}
		}
	}
}
