package decider

import "time"

// End is how a request ended.
type End uint8

// The ends of a request.
const (
	Served     End = iota // answered, whatever the status below 500
	Failed                // answered with a status of 500 or above
	ClientGone            // the client left first
	Refused               // no replica took it: it was never sent
	Died                  // the replica broke off, before or in mid-stream
	TimedOut              // the proxy gave up waiting
	Denied                // the proxy answered by itself
	Ends                  // how many of these the feed reports
	Expired               // nothing was reported within the lease; only policies see it
)

var endNames = [...]string{"served", "failed", "client_gone", "refused", "died", "timed_out", "denied", "", "expired"}

func (e End) String() string { return endNames[e] }

// Outcome is the end of a request, as the proxy reports it.
type Outcome struct {
	ID     ID
	Server []byte // who served, or was tried last; empty = nobody
	End    End
	Status int // of the answer; 0 = not known
	// Redispatched reports that the proxy turned to another server after the first
	// one had refused the connection.
	Redispatched bool
	TTFT         time.Duration // from request to first byte; 0 = not known
	Bytes        int           // of the answer's body, about; 0 = not known
}

// computed reports whether an engine computed the prompt, as far as is known: it
// answered, and not with an error. An answer that computed nothing teaches
// nothing about speeds, times and lengths.
func (o *Outcome) computed() bool {
	return o.Status < 400 && (o.TTFT > 0 || o.End == Served)
}

// settle brings v in line with the server that the proxy names. It returns the
// reservation to go on with: a new one if the proxy went ahead without a
// decision, nil if the server is not in the pool.
func (p *Pool) settle(v *reservation, id ID, server []byte, now time.Duration) *reservation {
	r := p.byName[string(server)]
	if r == nil {
		return v
	}
	if v == nil {
		reappeared(p, id, now)
		p.admission.forget(id) // the proxy went ahead
		return adopt(p, id, r, now)
	}
	if v.replica != r {
		p.move(v, r, now)
	}
	return v
}

// Connected reports that the proxy has a connection to server for the request.
func (p *Pool) Connected(id ID, server []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.reportedAt = now
	if v := p.settle(p.find(id), id, server, now); v != nil {
		p.answered(v)
		p.renew(v, now)
		p.report.reached(EventConnected, v, true)
	}
	p.admission.dispatch(now)
}

// FirstToken reports that the first byte of the answer has come.
func (p *Pool) FirstToken(id ID, server []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.reportedAt = now
	p.watch.first(id, server, now)
	v := p.settle(p.find(id), id, server, now)
	if v == nil || v.started {
		if v != nil && v.request.Stream && !v.prefill.reported {
			v.prefill.reported = true // the engine's count was faster
			p.load.proxyReported(now)
			p.report.reached(EventFirstToken, v, true)
		}
		return
	}
	p.answered(v)
	p.legs.firstToken(p, v, now)
	firstToken(p, v, now-v.at, true, now)
	p.report.reached(EventFirstToken, v, true)
	p.admission.dispatch(now)
}

// firstToken notes that a proxy reports the first byte of v, ttft after it was
// decided. The speed is learned from it if it is reported in time.
func firstToken(p *Pool, v *reservation, ttft time.Duration, inTime bool, now time.Duration) {
	creditFirstToken(v, now)
	if inTime {
		p.load.firstToken(v, now)
	} else {
		p.load.dequeue(v, now)
	}
	begin(p, v, ttft, now)
	p.renew(v, now)
}

// Failed reports that a replica failed a request that goes on: the proxy asks the agent
// again. The reservation ends, and the failure counts against the replica if it had the
// request.
func (p *Pool) Failed(id ID, replica string, end End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if v := p.find(id); v != nil {
		o := Outcome{ID: id, End: end}
		if v.decided != nil && v.replica.name == replica {
			accuse(p, v.replica, v, o, now)
		}
		refund(p, &v.request) // it is charged again
		p.release(v, o, now)
		p.report.ended(v, &o)
	}
	p.admission.dispatch(now)
}

// Holds reports whether the request has a reservation here, or waits for one.
func (p *Pool) Holds(id ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds(id)
}

func (p *Pool) holds(id ID) bool {
	return p.find(id) != nil || p.admission.isHeld(id) || p.unplaced.find(id) != nil
}

// Finished reports how the request ended. The reservation is settled against the server
// that served, which is not always the one that was chosen. It returns the time to first
// byte, bounded by what is possible.
func (p *Pool) Finished(o Outcome) (ttft time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished(o)
}

// believe bounds the times that the proxy measured for v: its clock may have been set
// meanwhile.
func (v *reservation) believe(o *Outcome, now time.Duration) {
	if v.isKnown() && !v.restored {
		o.TTFT = min(o.TTFT, now-v.at+v.waited)
	}
}

func (p *Pool) finished(o Outcome) (ttft time.Duration) {
	now := p.clock()
	if v := p.find(o.ID); v != nil {
		v.believe(&o, now)
	}
	ttft = o.TTFT
	p.reportedAt = now
	p.stats.Outcomes[o.End]++
	p.watch.finished(&o)
	if p.admission.forgetEnded(&o, now) {
		return ttft
	}
	defer p.admission.dispatch(now)
	v := p.find(o.ID)
	served := p.byName[string(o.Server)]
	if v == nil {
		v = endUnplaced(p, &o, served, now)
	}
	if v == nil || v.decided == nil && !v.unguided {
		p.gone.add(o.ID) // the question may still be waiting
	}
	if v == nil && reappeared(p, o.ID, now) {
		p.report.doubted(o.ID, string(o.Server))
	}
	if v == nil && served != nil {
		p.stats.Unreserved++
	}
	p.judge(v, served, o, now)
	if v == nil {
		return ttft
	}
	if served != nil && v.replica != served {
		p.move(v, served, now)
	}
	if !v.started && o.computed() {
		creditFirstToken(v, now)
		begin(p, v, max(o.TTFT-v.waited, 0), now)
	}
	p.answers.ended(v, &o)
	recordEnd(p, v, &o, now)
	p.release(v, o, now)
	p.report.ended(v, &o)
	return ttft
}

// finishedHere is Finished for a request that may have no reservation here; it returns
// whether it had one. A request without one may have ended before it was decided: with
// remember, the pool recognises the question when it comes.
func (p *Pool) finishedHere(o Outcome, remember bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.holds(o.ID) {
		if remember {
			p.gone.add(o.ID)
		}
		return false
	}
	p.finished(o)
	return true
}
