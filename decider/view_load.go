package decider

// Load is what a replica has to do and to do it with. What only its engine reports counts as
// much as that report is worth.
type Load struct {
	Requests    float64 // in flight, and those that the pool does not know
	Backlog     float64 // PrefillBacklog, and the prefill cost of those of the latter that wait
	Speed       float64 // PrefillSpeed
	InUse       float64 // tokens of its KV cache that requests use, shared ones counted once; output counts where the engine reports its usage
	Needed      float64 // InUse, and what requests need that wait in the engine: those use none yet
	CacheTokens float64 // size of its KV cache
}

// Load fills l with the load of replica i. Policies that need all of it of each replica need
// it fast.
func (v *View) Load(i int, l *Load) {
	r := v.Replicas[i]
	l.Requests, l.Backlog, l.Speed = float64(r.inFlight), v.PrefillBacklog(i), v.PrefillSpeed(i)
	trust := r.trust(v.Now)
	l.InUse, l.CacheTokens = v.pool.inUse(r, trust), float64(r.CacheTokens())
	l.Needed = l.InUse
	if trust == 0 {
		return
	}
	waiting := float64(r.signals.Waiting) - r.atSignals.waiting
	running := float64(r.signals.Running) - r.atSignals.running
	l.Requests += trust * max(0, waiting+running)
	l.Backlog += trust * max(0, waiting) * v.TypicalCost()
	if all := r.signals.Waiting + r.signals.Running; r.signals.Waiting > 0 && all > 0 {
		share := min(1, float64(r.signals.Waiting)/float64(all))
		l.Needed += trust * share * r.atSignals.usage * l.CacheTokens
	}
}
