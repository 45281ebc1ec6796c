package decider

import "time"

// Evidence against a replica is hard or soft. Hard evidence is a connection that it did not
// take: it is ejected for ejectFirst, and for twice as long with each further failure in a
// row, up to ejectMost. After that it gets one request at a time until one shows that it
// works.
//
// Soft evidence is an answer of 502 to 504, a timeout, or a broken stream: a client may
// have caused it, and a proxy reports the same for some streams whose clients left. A break
// ejects for ejectBroken, long enough for the other streams of a replica that died to break
// as well and for the next connection to be refused. Beyond that, soft evidence ejects only
// when a window holds softMoments of it, apart from each other, and no more successes than
// failures. It never ejects more than half of the pool: a failure of more replicas than
// that is not their own.
//
// So do passedEnough decisions in a row that the proxy gave to other replicas.
//
// An answer of 500 or 501 is weaker still: mostly the request itself causes it. But a
// replica that fails all it gets at once, as with a dead engine, is always the least loaded
// and attracts everything. Such answers eject like soft evidence if softMoments of them come
// within a window without a good answer between, no request from before them is under way
// there, and the other replicas serve at least as many requests as they answer so. A
// replica that works and is not idle has such an answer or such a request.
const (
	ejectBroken = 250 * time.Millisecond
	ejectFirst  = time.Second
	ejectMost   = 30 * time.Second

	softTogether = 250 * time.Millisecond // failures within it are one moment
	breaksCount  = time.Second            // breaks within it eject once
	softMoments  = 3
	softWindow   = 10 * time.Second

	// probeWait is how long a request to a replica that has failed keeps others
	// away. A proxy reports a refused connection sooner: silence is good news.
	probeWait = 5 * time.Second
)

// health records the failures of a replica.
type health struct {
	failures  int           // ejections in a row without a success: it is suspect
	hardUntil time.Duration // ejected by hard evidence before
	softUntil time.Duration // by soft
	deadUntil time.Duration // as its engine itself reported
	probed    time.Duration // when a suspect got its last request; 0 = it has none
	broke     time.Duration // when a break last ejected it
	erring    bool          // answers of 500 ejected it
	soft      softEvidence
}

// ejectedUntil is when its ejection ends. Until then it is chosen only if nothing else is
// left.
func (h *health) ejectedUntil() time.Duration { return max(h.hardUntil, h.softUntil, h.deadUntil) }

// suspect reports whether it has failed and has not been seen to work since.
func (h *health) suspect() bool { return h.failures > 0 }

// softEvidence is what happened in the current window.
type softEvidence struct {
	began     time.Duration
	successes int
	failures  int
	moments   int           // of the failures, those apart from each other
	last      time.Duration // when the last moment began
	errors    int           // answers of 500 and 501, which are no failures here
	errorRun  errorRun
}

// errorRun are answers of 500 and 501 without a good one between them.
type errorRun struct {
	began   time.Duration
	moments int           // apart from each other
	last    time.Duration // when the last one began
}

func (e *softEvidence) roll(now time.Duration) {
	if now-e.began >= softWindow {
		*e = softEvidence{began: now}
	}
}

// failed adds a failure, and reports whether it is enough to eject.
func (e *softEvidence) failed(now time.Duration) bool {
	e.roll(now)
	if e.moments == 0 || now-e.last >= softTogether {
		e.moments++
		e.last = now
	}
	e.failures++
	return e.moments >= softMoments && e.failures >= e.successes
}

// erred adds an answer of 500 or 501. It reports, once in each moment, whether the run of
// them is enough to eject.
func (e *softEvidence) erred(now time.Duration) bool {
	e.roll(now)
	e.errors++
	run := &e.errorRun
	switch {
	case run.moments == 0:
		run.began = now
	case now-run.last < softTogether:
		return false
	}
	run.moments++
	run.last = now
	return run.moments >= softMoments
}

// refused ejects r, which took no connection.
func (m *members) refused(r *Replica, now time.Duration) {
	r.failed++
	if r.rank != "" { // so do the other ranks of its engine
		for _, other := range m.replicas {
			if other != r && other.address == r.address {
				m.refusedToo(other, now)
			}
		}
	}
	m.refusedToo(r, now)
}

// refusedToo ejects r for a refused connection.
func (m *members) refusedToo(r *Replica, now time.Duration) {
	r.seen = false
	m.suspected(r)
	r.hardUntil = max(r.hardUntil, now+pauseAfter(r.failures))
	m.ejectedUntil = max(m.ejectedUntil, r.hardUntil)
}

// pauseAfter is how long the nth ejection in a row lasts.
func pauseAfter(n int) time.Duration { return min(ejectFirst<<min(n-1, 16), ejectMost) }

// suspected counts an ejection of r.
func (m *members) suspected(r *Replica) {
	if r.failures == 0 {
		m.suspects++
	}
	r.failures++
	r.probed = 0
}

// faltered counts soft evidence against r: a break, or another failure. What ends
// while r is ejected began before that and says nothing new.
func (m *members) faltered(r *Replica, isBreak bool, now time.Duration) {
	r.failed++
	if now < r.ejectedUntil() {
		return
	}
	enough := r.soft.failed(now)
	switch {
	case now < m.calmUntil:
	case enough || r.probed > 0: // so does the one request that a suspect got
		if m.ejectSoftly(r, now+pauseAfter(r.failures+1), now) {
			m.suspected(r)
			r.soft = softEvidence{began: now}
		}
	case isBreak && (r.broke == 0 || now-r.broke >= breaksCount):
		r.broke = now
		m.ejectSoftly(r, now+ejectBroken, now)
	}
}

// erred counts an answer of 500 or 501 by r, the end of v, against it.
func erred(p *Pool, r *Replica, v *reservation, now time.Duration) {
	r.failed++
	if now < r.ejectedUntil() {
		return
	}
	enough := r.soft.erred(now) && !p.account.older(r, v, r.soft.errorRun.began) && p.othersServe(r, now)
	if now < p.calmUntil || !enough && !(r.erring && r.probed > 0) {
		return
	}
	if p.ejectSoftly(r, now+pauseAfter(r.failures+1), now) {
		p.suspected(r)
		r.erring = true
		r.soft = softEvidence{began: now}
	}
}

// othersServe reports whether the replicas besides r serve at least as many requests as
// they answer with 500 or 501.
func (m *members) othersServe(r *Replica, now time.Duration) bool {
	served, errors := 0, 0
	for _, c := range m.replicas {
		if c != r && now-c.soft.began < softWindow {
			served, errors = served+c.soft.successes, errors+c.soft.errors
		}
	}
	return served >= errors
}

// ejectSoftly ejects r for soft evidence, unless that would happen to more than
// half of the replicas that are open. Then none is ejected for it for a while.
func (m *members) ejectSoftly(r *Replica, until, now time.Duration) bool {
	if !m.halfStays(r, now) {
		m.calmUntil = now + softWindow
		for _, c := range m.replicas {
			if c.soft = (softEvidence{began: now}); now < c.softUntil && now >= c.hardUntil {
				m.readmit(c)
			}
		}
		return false
	}
	r.softUntil = max(r.softUntil, until)
	m.ejectedUntil = max(m.ejectedUntil, r.softUntil)
	return true
}

// halfStays reports whether soft evidence may eject r as well: at least half of the replicas
// that are open stay.
func (m *members) halfStays(r *Replica, now time.Duration) bool {
	ejected := 1
	for _, i := range m.open {
		if c := m.replicas[i]; c != r && now < c.softUntil {
			ejected++
		}
	}
	return 2*ejected <= len(m.open)
}

// worked notes a success of r, which ends its ejection. A dead engine has no successes: its
// streams end with an error that a proxy does not see.
func (m *members) worked(r *Replica, now time.Duration) {
	if now < r.deadUntil {
		return
	}
	r.seen = true
	r.soft.roll(now)
	r.soft.successes++
	m.readmit(r)
}

// answered notes that a request has reached r: a replica that had refused connections is no
// longer suspect.
func (m *members) answered(v *reservation) {
	if r := v.replica; v.decided == r && r.probed > 0 && v.at >= r.hardUntil && r.hardUntil > r.softUntil {
		m.readmit(r)
	}
}

// readmit ends the ejection of r.
func (m *members) readmit(r *Replica) {
	if r.failures > 0 {
		m.suspects--
	}
	r.failures, r.hardUntil, r.softUntil, r.probed, r.broke, r.erring = 0, 0, 0, 0, 0, false
}

// trusted reports whether r's health allows choosing it. A suspect whose ejection is
// over takes one request at a time.
func (m *members) trusted(r *Replica, now time.Duration) bool {
	switch {
	case now < r.ejectedUntil():
		return false
	case !r.suspect() || r.probed == 0:
		return true
	case now-r.probed < probeWait:
		return false
	}
	m.readmit(r)
	return true
}

// judge counts the end of a request for or against the replicas that had it: served is the
// one that the proxy names last, v its reservation; each may be nil. An end without a
// decision of ours proves nothing: anyone who reaches the feed can report one, while nobody
// can guess the id of a request that was decided.
func (p *Pool) judge(v *reservation, served *Replica, o Outcome, now time.Duration) {
	if v == nil || v.decided == nil && !v.unguided {
		if served != nil && o.End == Served {
			served.served++
		}
		return
	}
	if o.Redispatched && v.decided != nil && v.decided != served {
		p.refused(v.decided, now) // another one took it
	} else if v.decided != nil && served != nil {
		p.followed(v.decided, v.decided == served, now)
	}
	if served == nil {
		return
	}
	if o.End == Served {
		served.served++
		p.worked(served, now)
		if o.Status < 400 {
			served.soft.errorRun = errorRun{}
		}
		return
	}
	if p.legs.failed(p, v, &o, now) {
		return
	}
	accuse(p, served, v, o, now)
}

// passedEnough are so many decisions in a row that the proxy did not follow that it will not
// follow the next either. What it marks down between two polls of its state stays below.
const passedEnough = 20

// followed counts the decisions in a row that the proxy did not follow: it has no such
// server, or holds it for down. Enough of them eject r like soft evidence; the requests that
// try it afterwards show whether that has changed.
func (m *members) followed(r *Replica, is bool, now time.Duration) {
	if is {
		r.passed = 0
		return
	}
	if r.passed++; r.passed < passedEnough || now < r.ejectedUntil() {
		return
	}
	if m.halfStays(r, now) { // else that is not their own fault
		r.softUntil = now + pauseAfter(r.failures+1)
		m.ejectedUntil = max(m.ejectedUntil, r.softUntil)
		m.suspected(r)
	}
}

// accuse counts the end of v against r, if it is r's fault.
func accuse(p *Pool, r *Replica, v *reservation, o Outcome, now time.Duration) {
	switch {
	case o.End == Refused:
		p.refused(r, now)
	case o.End == Failed && (o.Status == 500 || o.Status == 501):
		erred(p, r, v, now)
	case o.End == Failed || o.End == TimedOut:
		p.faltered(r, false, now)
	case o.End == Died:
		p.faltered(r, true, now)
	}
}

// Checked reports what the agent's own check of a replica found. A replica that
// either the agent or the proxy finds down is not chosen. Checked returns
// whether the state changed.
func (p *Pool) Checked(replica string, healthy bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil {
		return false
	}
	r.seen = healthy
	if r.unhealthy == !healthy {
		return false
	}
	now := p.clock()
	r.unhealthy = !healthy
	if healthy {
		r.since = now
		p.readmit(r)
		p.restarted(r)
	}
	p.refresh()
	p.admission.dispatch(now)
	return true
}
