package decider

import (
	"math"
	"time"
)

// Signals are what an engine reports of its load. Policies must do without: many
// replicas report nothing.
type Signals struct {
	Waiting, Running int           // requests
	KVUsage          float64       // used share of the KV cache, 0 to 1
	Throughput       float64       // requests finished a second
	CacheTokens      int           // size of the KV cache; 0 = not reported
	BlockTokens      int           // in a block of it; 0 = not reported
	At               time.Duration // when it was reported, by the pool's clock
	Known            bool          // something was reported at all
}

// signalMemory is after how long a signal has 1/e of its weight.
const signalMemory = 5 * time.Second

// localLoad is the pool's own count of a replica's load at one moment, in the units of
// Signals.
type localLoad struct{ waiting, running, usage float64 }

// Signals reports the engine's load now; s.At and s.Known are set by the pool.
func (e Engine) Signals(s Signals) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	s.At, s.Known = p.clock(), true
	if !(s.KVUsage >= 0) { // a NaN of one engine would spread to the estimates of the pool
		s.KVUsage = 0
	}
	s.KVUsage = min(1, s.KVUsage)
	p.load.advance(r, s.At)
	r.signals, r.atSignals = s, p.localLoad(r)
	p.load.findPlaces(r, s.At)
	if s.CacheTokens > 0 && s.CacheTokens != r.cacheTokens {
		r.cacheTokens = s.CacheTokens
		p.caches.resize(r)
		p.updateBounds(&p.config, p.replicas)
	}
	if !r.blocksSeen {
		learnBlockTokens(p, r, s.BlockTokens)
	}
	reconcile(p, r, true, s.At)
	p.admission.dispatch(s.At)
}

// Member is a replica's name and where it is.
type Member struct{ Name, Address string }

// Members are the pool's replicas as they are now.
func (p *Pool) Members() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Member, len(p.replicas))
	for i, r := range p.replicas {
		list[i] = Member{r.name, r.address}
	}
	return list
}

// Restarted reports that the engine has restarted: its cache is empty.
func (e Engine) Restarted() {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	p.restarted(r)
	r.firstTokens, r.promptWindow = firstTokens{}, promptWindow{}
}

// trust is the weight of the replica's signals at now, from 0 to 1.
func (r *Replica) trust(now time.Duration) float64 {
	if !r.signals.Known {
		return 0
	}
	return r.weighed(now)
}

// weighed is trust where there are signals. It is apart so that trust is inlined.
func (r *Replica) weighed(now time.Duration) float64 {
	if age := now - r.signals.At; age != r.trusted.age || r.trusted.weight == 0 {
		r.trusted.age, r.trusted.weight = age, math.Exp(-float64(age)/float64(signalMemory))
	}
	return r.trusted.weight
}

// The estimates below are the pool's own count plus the difference to the engine's last
// report, weighted by the age of that report. So requests sent since the report count at
// once, requests from elsewhere count as long as the engine reports them, and an engine
// that stops reporting is soon judged by the pool's count alone.

// WaitingRequests estimates how many requests replica i has before their first
// token. It is a prediction where the feed does not report first tokens as they
// come.
func (v *View) WaitingRequests(i int) float64 {
	r := v.Replicas[i]
	v.PrefillBacklog(i) // brings the queue up to now
	n := float64(r.prefill.n)
	if w := r.trust(v.Now); w > 0 {
		n += w * (float64(r.signals.Waiting) - r.atSignals.waiting)
	}
	return max(0, n)
}

// RunningRequests estimates how many requests replica i is generating tokens for.
func (v *View) RunningRequests(i int) float64 {
	r := v.Replicas[i]
	v.PrefillBacklog(i)
	n := float64(r.inFlight - r.prefill.n - r.remote)
	if w := r.trust(v.Now); w > 0 {
		n += w * (float64(r.signals.Running) - r.atSignals.running)
	}
	return max(0, n)
}

// KVUsage estimates the used share of replica i's KV cache, 0 to 1.
func (v *View) KVUsage(i int) float64 {
	r := v.Replicas[i]
	x := v.pool.account.usage(r)
	if w := r.trust(v.Now); w > 0 {
		x += w * (r.signals.KVUsage - r.atSignals.usage)
	}
	return min(1, max(0, x))
}

// Throughput estimates the requests per second of replica i: as its engine
// reports it, or else the requests sent to it in the last second.
func (v *View) Throughput(i int) float64 {
	r := v.Replicas[i]
	w, own := r.trust(v.Now), r.taken.rate(v.Now)
	return own + w*(r.signals.Throughput-own)
}

// TypicalCost is the mean prefill cost of about the pool's last 512 requests.
func (v *View) TypicalCost() float64 { return v.pool.load.typical }
