package decider

import "time"

// End is how a request ended.
type End uint8

const (
	Served     End = iota // answered, whatever the status below 500
	Failed                // answered with a status of 500 or above
	ClientGone            // the client left first
	Refused               // no replica took it: it was never sent
	Died                  // the replica broke off, before or in mid-stream
	TimedOut              // the proxy gave up waiting
	Denied                // the proxy answered by itself
	Ends                  // how many of these the feed tells
	Expired               // no news within the lease: what the pool tells its policy
)

var endNames = [...]string{"served", "failed", "client_gone", "refused", "died", "timed_out", "denied", "", "expired"}

func (e End) String() string { return endNames[e] }

// fault reports whether the end speaks against the replica.
func (e End) fault() bool { return e == Failed || e == Refused || e == Died || e == TimedOut }

// Outcome is the end of a request, as the proxy tells it.
type Outcome struct {
	ID     ID
	Server []byte // who served, or was tried last; empty = nobody
	End    End
	// Redispatched tells that the proxy turned to another server after the
	// first one did not take the connection.
	Redispatched bool
	TTFT         time.Duration // from request to first byte; 0 = not known
}

// settle brings v in line with the server the proxy names. It returns the
// reservation to go on with: a new one when the proxy went ahead without a
// decision, nil when the server is none of the pool's.
func (p *Pool) settle(v *reservation, id ID, server []byte, now time.Duration) *reservation {
	r := p.byName[string(server)]
	if r == nil {
		return v
	}
	if v == nil {
		p.admission.forget(id) // the proxy went ahead
		p.stats.Adopted++
		v = p.reservations.add(id)
		v.decided, v.at, v.lease, v.started = nil, now, now+p.config.Lease, false
		v.tokens, v.input = 0, 0
		v.request.keep(&Request{ID: id, Pool: p, Output: -1})
		v.waited, v.start = 0, 0
		p.book(v, r, now)
		p.admission.sent(v, 1)
		return v
	}
	if v.replica != r {
		p.move(v, r, now)
	}
	return v
}

// Connected tells that the proxy has a connection to server for the request.
func (p *Pool) Connected(id ID, server []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.newsAt = now
	if v := p.settle(p.reservations.find(id), id, server, now); v != nil {
		p.renew(v, now)
	}
	p.admission.dispatch(now)
}

// FirstToken tells that the first byte of the answer has come.
func (p *Pool) FirstToken(id ID, server []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.newsAt = now
	v := p.settle(p.reservations.find(id), id, server, now)
	if v == nil || v.started {
		if v != nil && v.request.Stream && !v.prefill.reported {
			v.prefill.reported = true // the engine's count was faster
			p.load.proxyReported(now)
		}
		return
	}
	v.replica.creditFirstToken(now)
	p.load.firstToken(v, now)
	p.start(v, now-v.at, now)
	p.renew(v, now)
	p.admission.dispatch(now)
}

// start notes the first byte of v, ttft after the request came.
func (p *Pool) start(v *reservation, ttft, now time.Duration) {
	v.started = true
	v.replica.waiting--
	if v.decided != nil && ttft > 0 { // else it is not known
		v.replica.ttft.add(ttft, now)
	}
	p.admission.started(v)
	v.replica.adapters.started(v.request.LoRA)
	p.pinBlocks(v)
	r := v.replica
	r.promptWindow.begun++
	r.promptWindow.text += v.request.text
	r.promptWindow.exact += v.request.exact
	if p.observer != nil && v.replica.index >= 0 {
		p.observer.FirstToken(&v.request, v.replica.index)
	}
}

// renew gives v a new lease: there was news of it.
func (p *Pool) renew(v *reservation, now time.Duration) {
	v.lease = now + p.config.Lease
	p.reservations.touch(v)
}

// Failed tells that a replica failed a request which has not ended with that:
// the proxy turns to the agent again. What the request had reserved is free,
// and the replica is charged.
func (p *Pool) Failed(id ID, replica string, end End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if r := p.byName[replica]; r != nil {
		p.fail(r, coolFirst, now)
	}
	if v := p.reservations.find(id); v != nil {
		p.release(v, Outcome{ID: id, End: end}, now)
	}
	p.admission.dispatch(now)
}

// Holds reports whether the request has a reservation here, or waits for one.
func (p *Pool) Holds(id ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reservations.find(id) != nil || p.admission.isHeld(id)
}

// Finished tells how the request ended. The reservation is settled against
// the server that served, which is not always the one that was chosen.
func (p *Pool) Finished(o Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished(o)
}

func (p *Pool) finished(o Outcome) {
	now := p.clock()
	p.newsAt = now
	p.stats.Outcomes[o.End]++
	if p.admission.forget(o.ID) {
		return
	}
	defer p.admission.dispatch(now)
	v := p.reservations.find(o.ID)
	served := p.byName[string(o.Server)]
	if v == nil || v.decided == nil {
		p.gone.add(o.ID) // the question may wait yet
	}
	if v == nil && served != nil {
		p.stats.Unreserved++
	}
	if o.Redispatched && v != nil && v.decided != nil && v.decided != served {
		p.fail(v.decided, coolFirst, now) // it did not take the connection: another one did
	}
	if served != nil {
		switch {
		case o.End == Died && (o.TTFT > 0 || v != nil && v.started):
			p.fail(served, coolBroken, now)
		case o.End.fault():
			p.fail(served, coolFirst, now)
		case o.End == Served:
			served.succeed()
		}
	}
	if v == nil {
		return
	}
	if served != nil && v.replica != served {
		p.move(v, served, now)
	}
	if !v.started && (o.TTFT > 0 || o.End == Served) {
		v.replica.creditFirstToken(now)
		p.start(v, max(o.TTFT-v.waited, 0), now)
	}
	p.release(v, o, now)
}

// finishedIfReserved is Finished for a request that may hold a reservation here.
// It reports whether it did.
func (p *Pool) finishedIfReserved(o Outcome) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reservations.find(o.ID) == nil && !p.admission.isHeld(o.ID) {
		return false
	}
	p.finished(o)
	return true
}

// finishedOrBuried is Finished for a request that may belong to another pool.
// One that holds no reservation here has ended before it was decided: the pool
// may be asked for it yet. It reports whether there was a reservation.
func (p *Pool) finishedOrBuried(o Outcome) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reservations.find(o.ID) == nil && !p.admission.isHeld(o.ID) {
		p.gone.add(o.ID)
		return false
	}
	p.finished(o)
	return true
}
