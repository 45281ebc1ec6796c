package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// account books reservations on the replicas: from its start to its end, each counts in its
// replica's figures, in the predicted prefill queue and in the cache model. It lives under
// the pool's lock.
type account struct {
	reservations
	load      loadEstimate
	occupancy occupancy
	turnover  turnover
	caches    cacheModel
	sessions  sessionMemory
	lease     time.Duration // a reservation ends this long after its last report
}

// reserve makes a reservation for r on replica, as decided at now, and books it. prefill
// computes the prompt; nil = replica does.
func (a *account) reserve(r *Request, replica, prefill *Replica, now time.Duration) *reservation {
	v := a.add(r.ID)
	v.remote, v.via = prefill != nil, prefill
	v.decided = replica
	v.at, v.lease = now, now+a.lease
	v.tokens = r.Input + max(r.Output, 0)
	v.input = r.Input
	v.request.keep(r)
	a.book(v, replica, now)
	return v
}

// adopt makes a reservation for a request that the proxy sent to replica without a
// decision, and books it. Its prompt is unknown.
func (a *account) adopt(id ID, pool *Pool, replica *Replica, now time.Duration) *reservation {
	v := a.add(id)
	v.at, v.lease = now, now+a.lease
	v.request.keep(&Request{ID: id, Pool: pool, Output: -1})
	a.book(v, replica, now)
	return v
}

// book counts v on replica, where the request goes.
func (a *account) book(v *reservation, replica *Replica, now time.Duration) {
	v.replica = replica
	replica.taken.add(now)
	a.sessions.add(&v.request, replica)
	v.missing = v.input - a.caches.cached(v, &a.load)
	if v.remote {
		v.slow = [kvcache.Slower]int{} // another replica copies them
		a.hold(v, 0, now)
		return
	}
	a.hold(v, v.missing, now)
}

// hold adds v to what its replica has in flight, with so many prompt tokens to
// compute.
func (a *account) hold(v *reservation, uncached int, now time.Duration) {
	replica := v.replica
	if v.request.LoRA != "" {
		replica.adapters.reserve(v.request.LoRA)
		if v.started {
			replica.adapters.started(v.request.LoRA)
		}
	}
	replica.inFlight++
	if replica.asked(v) {
		replica.ofProxy++
	}
	if v.from != "" {
		replica.fromPeers++
	}
	replica.tokens += v.tokens
	replica.input += v.input
	if !v.started {
		replica.waiting++
	}
	v.uncached = uncached
	if v.remote && !v.started {
		replica.remote++ // it is in no queue of this replica
		if v.via != nil {
			v.via.moving += v.missing
		}
		v.prefill = prefill{}
	} else {
		a.load.enqueue(v, uncached, now)
		a.turnover.add(replica, uncached)
	}
	a.caches.reserve(v, now)
}

// unbook takes v off its replica.
func (a *account) unbook(v *reservation, now time.Duration) {
	a.load.dequeue(v, now)
	a.caches.release(v)
	v.replica.inFlight--
	if v.replica.asked(v) {
		v.replica.ofProxy--
	}
	if v.from != "" {
		v.replica.fromPeers--
	}
	v.replica.tokens -= v.tokens
	v.replica.input -= v.input
	if !v.started {
		v.replica.waiting--
		v.replica.arrived(v)
	}
	if v.request.LoRA != "" {
		v.replica.adapters.release(v.request.LoRA)
	}
}

// move books v on the replica that really serves it.
func (a *account) move(v *reservation, replica *Replica, now time.Duration) {
	a.unbook(v, now)
	v.remote = v.remote && replica.role == RoleDecode
	a.book(v, replica, now)
}

// start notes the first byte of v, ttft after the request came; 0 = not known.
func (a *account) start(v *reservation, ttft, now time.Duration) {
	r := v.replica
	r.arrived(v)
	v.started = true
	r.waiting--
	if v.decided != nil && ttft > 0 {
		r.ttft.add(ttft, now)
	}
	r.adapters.started(v.request.LoRA)
	a.caches.pin(v)
	r.promptWindow.begun++
	r.promptWindow.text += v.request.TextBytes
	r.promptWindow.exact += v.request.ExactTokens
}

// renew gives v a new lease after a report.
func (a *account) renew(v *reservation, now time.Duration) {
	v.lease = now + a.lease
	a.touch(v)
}

// end takes v off its replica and frees it. Its contents stay until the next add.
func (a *account) end(v *reservation, o Outcome, now time.Duration) {
	a.load.ended(v, o)
	if v.started || o.computed() {
		v.replica.places.ends.add(1, now)
	}
	a.unbook(v, now)
	a.remove(v)
}

// used is how many tokens of r's KV cache are in use: by the blocks in use where the cache
// is modelled, else by the prompts in flight.
func (a *account) used(r *Replica) float64 {
	if r.cache != nil && r.cache.InUse() > 0 {
		return float64(r.cache.InUse() * a.caches.blockTokens)
	}
	return float64(r.input)
}

// usage is the used share of r's KV cache.
func (a *account) usage(r *Replica) float64 { return a.used(r) / float64(max(r.CacheTokens(), 1)) }

// inUse estimates how many tokens of r's KV cache its requests use. trust is the weight of
// the engine's own report. Output limits do not count: most answers are far shorter.
func (a *account) inUse(r *Replica, trust float64) float64 {
	if trust == 0 {
		return a.used(r)
	}
	beyond := min(1, max(0, r.signals.KVUsage)) - r.atSignals.usage
	return max(0, a.used(r)+trust*beyond*float64(max(r.CacheTokens(), 1)))
}

// localLoad counts the load of r, as of the last advance of its prefill queue.
func (a *account) localLoad(r *Replica) localLoad {
	return localLoad{
		waiting: float64(r.prefill.n),
		running: float64(r.inFlight - r.prefill.n - r.remote),
		usage:   a.usage(r),
	}
}

// restarted clears what the pool assumes of the memory of r's engine.
func (a *account) restarted(r *Replica) {
	a.caches.restarted(r)
	r.computed, r.places.most = 0, concurrency{}
	r.adapters.restarted()
}
