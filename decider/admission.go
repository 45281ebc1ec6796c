package decider

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"pointsman/decider/queue"
	"pointsman/session"
)

// Admission orders a pool's requests while its replicas have no capacity for all of them,
// and decides which are refused. A pool without one sends each request at once.
type Admission struct {
	// Hold keeps requests in the pool until a replica has capacity, and assigns
	// them only then. Otherwise they wait in the proxy's queues, by
	// Decision.Class and Decision.Offset.
	Hold bool
	// FIFO gives a replica with capacity whichever request is first in line.
	// Otherwise a request waits for the replica that the policy would choose for
	// it, unless an idle one gains much by taking it.
	FIFO bool
	// HoldWithoutReplica, together with Hold, also keeps requests while no replica of the
	// pool takes requests: one may come. Otherwise such requests are decided at once.
	HoldWithoutReplica bool
	// Bands are the classes of requests, the most urgent first; at least one. The last
	// one takes requests that match no other.
	Bands []queue.Band
	// TenantWeights are the weights of tenants that differ from 1; these tenants are
	// counted by name.
	TenantWeights map[string]int
	// FeedbackDelay is how late the feed reports first tokens, until
	// Pool.Delayed has measured it.
	FeedbackDelay time.Duration
}

// settings is an Admission with its defaults applied. It is immutable.
type settings struct {
	Admission
	*queue.Settings
}

func newSettings(a Admission) *settings {
	c := queue.Config{Bands: a.Bands}
	for _, name := range slices.Sorted(maps.Keys(a.TenantWeights)) {
		c.Shares = append(c.Shares, queue.Share{Name: name, Tenant: session.Key([]byte(name)), Weight: a.TenantWeights[name]})
	}
	return &settings{a, queue.NewSettings(c)}
}

// admission is the part of a pool that decides when its requests go to its
// replicas. It lives under the pool's lock, but for current.
type admission struct {
	pool    *Pool
	current atomic.Pointer[settings] // settings again, for readers without the lock

	*settings              // nil = none: each request is decided at once
	queue     *holding     // what waits here
	proxy     *queue.Proxy // what was sent to the proxy's queues
	counts    *queue.Counters
	spillTo   []*Pool       // by band, the pool that takes requests beyond the limits
	draining  bool          // nothing waits any more: the process is about to end
	capacity  capacity      // of the replicas
	mask      mask          // the replicas that may be chosen now
	ahead     []float64     // memory of View.ahead
	departure rateEstimator // work that left the queue while more waited
	departed  time.Duration // when some last did
	stall     stall
	elsewhere holdsElsewhere
}

// holding is the queue of a pool.
type holding = queue.Queue[held]

// held is a request that waits.
type held struct {
	request   *Request
	decision  *Decision
	waiter    Waiter        // nil until Submit has returned
	published bool          // the other agents know of it
	lost      time.Duration // time that the process had lost when it came, or was last due
	// elsewhere is set for requests that another agent holds, which have neither a decision
	// nor a waiter; else it is nil.
	elsewhere *elsewhere
}

// on reports whether the pool has an admission.
func (a *admission) on() bool { return a.settings != nil }

// holds reports whether requests wait here, not in the proxy.
func (a *admission) holds() bool { return a.on() && a.Hold }

// queuesInProxy reports whether requests beyond the replicas' limits wait at the
// proxy's servers, so that such a replica may be chosen all the same.
func (a *admission) queuesInProxy() bool { return a.on() && !a.Hold }

// configure makes c the pool's admission; nil means none. Requests that wait
// keep waiting in the band of the same name.
func (a *admission) configure(c *Admission, now time.Duration) {
	p, before, old := a.pool, a.settings, a.queue
	a.settings, a.queue, a.proxy = nil, nil, nil
	if c != nil && len(c.Bands) > 0 {
		a.settings = newSettings(*c)
		a.capacity.configured = c.FeedbackDelay
		a.queue, a.proxy = queue.New[held](a.Settings), queue.NewProxy(a.Settings)
	}
	a.current.Store(a.settings)
	p.limits = !a.queuesInProxy()
	p.refresh()
	if before == nil {
		a.counts, a.departure = nil, rateEstimator{}
	}
	if a.on() {
		a.counts = queue.NewCounters(a.Settings, a.counts)
	}
	if before == nil {
		return
	}
	for id := range p.account.byID {
		v := p.find(id)
		if !a.on() {
			v.request.Band = 0
			continue
		}
		v.request.Band = a.Index(before.Band(v.request.Band).Name)
		a.sent(v, 1)
	}
	if !a.holds() {
		a.elsewhere = holdsElsewhere{pool: p}
		for it := old.First(); it != nil; it = old.First() {
			old.Remove(it)
			if it.Value.elsewhere != nil {
				continue
			}
			a.tryDecide(it.Value.request, it.Value.decision, now)
			a.pool.report.notHeld(it)
			it.Value.waiter.Decided()
		}
	} else if old.Len() > 0 {
		a.departed = now
		a.queue.Adopt(old, p.load.poolSpeed(), func(it *queue.Item[held]) { it.Value.request.Band = it.Band })
	}
	a.dispatch(now)
}

// setSpills notes the pools that take requests beyond the limits.
func (a *admission) setSpills(byName map[string]*Pool) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.spillTo = nil
	if !a.on() {
		return
	}
	for i := range a.Len() {
		a.spillTo = append(a.spillTo, byName[a.Band(i).Spill])
	}
}

// sent notes that n more requests of the reservation's band are in flight.
func (a *admission) sent(v *reservation, n int) {
	if a.on() && !v.leg {
		a.proxy.Sent(v.request.Band, n)
	}
}

// started notes the first byte of a reservation's answer.
func (a *admission) started(v *reservation) {
	if a.on() && !v.leg {
		a.proxy.Served(v.request.Band, v.start)
	}
}

// ended notes the end of a reservation.
func (a *admission) ended(v *reservation, now time.Duration) {
	if a.on() && !v.leg {
		a.proxy.Sent(v.request.Band, -1)
		a.proxy.Ended(now)
	}
}

// count is the count of r's band and tenant.
func (a *admission) count(r *Request) *queue.Count { return a.counts.Of(r.Band, r.Tenant) }

// find is the item of a request that is held here, or nil.
func (a *admission) find(id ID) *queue.Item[held] {
	if !a.on() {
		return nil
	}
	if it := a.queue.Find(id); it != nil && it.Value.elsewhere == nil {
		return it
	}
	return nil
}

// isHeld reports whether a request of that id is held.
func (a *admission) isHeld(id ID) bool { return a.find(id) != nil }

// forget drops the request of that id, if it is held: its client has left, or
// the proxy has gone on without a decision. It reports whether it was held.
func (a *admission) forget(id ID) bool {
	it := a.find(id)
	if it == nil {
		return false
	}
	a.counts.Of(it.Band, it.Tenant).Gone++
	a.abandon(it, "client_gone")
	return true
}

// forgetEnded is forget for a request whose end o reports.
func (a *admission) forgetEnded(o *Outcome, now time.Duration) bool {
	it := a.find(o.ID)
	if it == nil {
		return false
	}
	p, r := a.pool, it.Value.request
	p.ended = Ended{At: it.At, Status: o.Status, Outcome: o.End.String(), Output: -1}
	handToRecorder(p, r, r.Blocks, now)
	return a.forget(o.ID)
}

// abandon drops an item that nobody waits for any more.
func (a *admission) abandon(it *queue.Item[held], why string) {
	a.queue.Remove(it)
	it.Value.decision.Why = why
	refund(a.pool, it.Value.request)
	a.answer(it)
}

// answer wakes the waiter of an item that was removed from the queue.
func (a *admission) answer(it *queue.Item[held]) {
	a.pool.report.notHeld(it)
	w := it.Value.waiter
	a.queue.Recycle(it)
	if w != nil {
		w.Decided()
	}
}

// drain decides all waiting requests at once, and those that come later.
func (a *admission) drain(now time.Duration) {
	a.draining = true
	if !a.on() {
		return
	}
	for it := a.queue.First(); it != nil; it = a.queue.First() {
		if it.Value.elsewhere != nil {
			a.elsewhere.forget(it)
			continue
		}
		a.queue.Remove(it)
		a.tryDecide(it.Value.request, it.Value.decision, now)
		a.answer(it)
	}
}

// Drain prepares for the end of the process: it decides all held requests at once, and
// every request that still comes.
func (d *Decider) Drain() {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.admission.drain(p.clock())
		p.mu.Unlock()
	}
}

// HoldsRequests reports whether the admission of any pool may hold requests, so that
// Dispatch must be called.
func (d *Decider) HoldsRequests() bool {
	for _, p := range d.Pools() {
		if s := p.admission.current.Load(); s != nil && s.Hold {
			return true
		}
	}
	return false
}

// Dispatch assigns and refuses held requests as time passes, without an event. If
// HoldsRequests, the owner of the decider calls it about every 20 ms.
func (d *Decider) Dispatch() {
	for _, p := range d.Pools() {
		if s := p.admission.current.Load(); s != nil && s.Hold {
			p.mu.Lock()
			now := p.clock()
			p.admission.dispatch(now)
			p.admission.stall.ticked = now
			p.mu.Unlock()
		}
	}
}
