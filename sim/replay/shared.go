package replay

import (
	"pointsman/sim"
	"pointsman/sim/trace"
)

// RunShared runs the trace through the bound that no choice of replicas can
// be expected to beat by much: the replicas compute as ever, but hold one
// cache together, and take from one queue what they next have room for. The
// options that concern agents and failures have no effect.
func RunShared(t *trace.Trace, o Options) (*Result, error) {
	p, err := newPlayback(t, &o)
	if err != nil {
		return nil, err
	}
	sim.Share(p.fleet)
	p.shared = true
	p.run(func(f *flight) {
		p.load.sent(-1)
		if err := p.fleet[0].Submit(p.now, &f.job); err != nil {
			p.end(f, flightRefused)
			return
		}
		p.wakeAll()
	})
	return p.result(o.PolicyName), nil
}

// wakeAll has every engine look at the common queue. Those that do nothing go
// first.
func (p *playback) wakeAll() {
	for _, active := range [...]bool{false, true} {
		for k, e := range p.fleet {
			if _, busy := e.Next(); busy == active {
				e.Wake(p.now)
				p.schedule(k)
			}
		}
	}
}
