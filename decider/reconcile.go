package decider

import "time"

const (
	// lostAfter is how long a replica must hold fewer requests than are reserved on it
	// before the difference counts as lost outcomes.
	lostAfter = 4 * time.Second
	// reportGap is the longest time between two of the reports that are compared.
	// After a longer one, as when the process was stopped, the feed gets another
	// lostAfter to catch up.
	reportGap = 6 * time.Second
	// doubtFor is how long nothing is reclaimed after a reclaimed request was reported
	// after all. It doubles each time, up to doubtMost.
	doubtFor  = 30 * time.Second
	doubtMost = time.Hour
)

// shortfall tracks how many requests fewer than are reserved on it a replica has held.
type shortfall struct {
	since, last time.Duration // of the first and the last report in a row; since 0 = none
	least       int           // the smallest difference
	most        int           // the most requests that the replica held
	byEngine    bool          // by its engine's count
	rounds      int           // how often it lasted for lostAfter, in a row
}

// reclaimed is a request whose outcome was taken for lost.
type reclaimed struct {
	id       ID
	replica  *Replica      // nil = another agent says so
	at       time.Duration // when
	byEngine bool          // by the engine's count
}

// reclaims remembers requests whose outcomes were taken for lost. It lives under the pool's
// lock.
type reclaims struct {
	last  [256]reclaimed
	next  int
	doubt time.Duration // how long the next doubt lasts
	until time.Duration // nothing is reclaimed before
}

func (c *reclaims) add(x reclaimed) {
	c.last[c.next%len(c.last)] = x
	c.next++
}

// reappeared notes a report on a request without a reservation. If the request was taken
// for lost, that was the wrong one: another one that has not been reported since then ends
// in its place. If there is none, the replica's report was incomplete: nothing is reclaimed
// for a while, and reappeared returns true.
func reappeared(p *Pool, id ID, now time.Duration) (doubted bool) {
	c := &p.reclaims
	for i := range c.last[:min(c.next, len(c.last))] {
		if c.last[i].id != id {
			continue
		}
		x := c.last[i]
		c.last[i] = reclaimed{}
		if v := silentSince(p, &x); v != nil {
			c.add(reclaimed{v.id, x.replica, x.at, x.byEngine})
			p.expire(v, now)
			return false
		}
		c.doubt = min(max(2*c.doubt, doubtFor), doubtMost)
		c.until = now + c.doubt
		return true
	}
	return false
}

// silentSince returns a reservation of ours whose outcome may be the lost one, instead of
// that of x, or nil.
func silentSince(p *Pool, x *reclaimed) *reservation {
	if x.replica == nil {
		return nil
	}
	a := &p.account
	for i := a.slots[0].next; i != 0; i = a.at(i).next {
		v := a.at(i)
		if v.replica == x.replica && v.from == "" && v.lease-a.lease < x.at && (x.byEngine || v.replica.asked(v)) {
			return v
		}
	}
	return nil
}

// reconcile compares the reservations on r with the requests that r holds now, by the
// report of its engine or of the proxy. If r holds fewer for lostAfter, the outcomes of the
// others were lost, for example because the agent was stopped or a log line was dropped: of
// the requests older than that, those reported least recently end as expired. fromEngine
// says who reports. An engine counts the requests of all proxies and agents. If it reports
// nothing, the proxy's count of its own requests is used. The caller holds the lock.
func reconcile(p *Pool, r *Replica, fromEngine bool, now time.Duration) {
	s := &r.shortfall
	byEngine, byProxy := counted(p, r, now)
	if byEngine && !fromEngine {
		return
	}
	reserved, held := r.ofProxy, r.atProxy
	if byEngine {
		// Its engine knows nothing yet of requests whose prompts are computed elsewhere.
		reserved, held = r.inFlight-r.remote, r.signals.Waiting+r.signals.Running
		if byProxy {
			held = max(held+r.atQueue, r.atProxy)
		}
	}
	if p.admission.on() && !p.admission.Hold && (!byProxy || byEngine && r.ofProxy < r.inFlight) {
		return // the others may wait in a proxy
	}
	if !byEngine && !byProxy || reserved <= held || now < p.reclaims.until {
		*s = shortfall{}
		return
	}
	if s.since == 0 || now-s.last > reportGap || s.byEngine != byEngine {
		*s = shortfall{since: max(now, 1), least: reserved, byEngine: byEngine, rounds: s.rounds}
	}
	s.last, s.least, s.most = now, min(s.least, reserved-held), max(s.most, held)
	if now-s.since < lostAfter {
		return
	}
	reclaim(p, r, s, now)
	*s = shortfall{rounds: s.rounds + 1}
}

// counted reports whether the engine of r, and the proxy, have said lately how many requests
// r holds.
func counted(p *Pool, r *Replica, now time.Duration) (byEngine, byProxy bool) {
	return r.signals.Known && now-r.signals.At < reportGap, r.proxyCounts && now-p.statesAt < reportGap
}

// lastResort is the number of rounds after which an agent that does not lead ends
// reservations of silent agents: it may have missed that the others ended them.
const lastResort = 3

// reclaim ends the reservations on r that s shows to be lost. Where other agents see the
// same, one leads and the others follow it: otherwise each would take another reservation
// for the lost one.
func reclaim(p *Pool, r *Replica, s *shortfall, now time.Duration) {
	list := &p.account.reservations
	leads := !s.byEngine || p.peers.leads()
	concerns := func(v *reservation) bool {
		return v.replica == r && v.at < s.since && (s.byEngine && (!v.remote || v.started) || !s.byEngine && r.asked(v)) &&
			(leads || s.rounds >= lastResort && v.from != "" && !p.peers.answers(v.from))
	}
	old := 0
	for i := list.slots[0].next; i != 0; i = list.at(i).next {
		if concerns(list.at(i)) {
			old++
		}
	}
	lost := s.least
	if leads {
		lost = min(lost, old-s.most)
	}
	// First those that only the feed has reported: it has lost lines since.
	for _, adopted := range [...]bool{true, false} {
		for i := list.slots[0].next; i != 0 && lost > 0; {
			v := list.at(i)
			i = v.next
			if !concerns(v) || adopted != (v.decided == nil) {
				continue
			}
			lost--
			if !v.restored { // else it is a guess which of them has ended: the end of another one proves nothing
				x := reclaimed{id: v.id}
				if v.from == "" {
					x = reclaimed{v.id, r, now, s.byEngine}
				}
				p.reclaims.add(x)
			}
			if leads && v.from != "" {
				p.report.ended(v, &Outcome{End: Expired})
			}
			if !p.peers.answers(v.from) {
				p.expire(v, now)
			}
		}
	}
}

// asked reports whether the process of the proxy that counts the requests on r has
// asked about v.
func (r *Replica) asked(v *reservation) bool {
	return v.request.Origin != 0 && v.request.Origin == r.proxyOrigin
}

// setProxy notes which process of the proxy counts the requests on r from now on.
func (a *account) setProxy(r *Replica, origin uint64) {
	if origin == r.proxyOrigin {
		return
	}
	r.proxyOrigin, r.ofProxy, r.shortfall = origin, 0, shortfall{}
	for i := a.slots[0].next; i != 0; i = a.at(i).next {
		if v := a.at(i); v.replica == r && r.asked(v) {
			r.ofProxy++
		}
	}
}

// Gone reports that a process of a proxy has ended, and its requests with it. The caller
// waits for the ends that it has reported to arrive.
func (d *Decider) Gone(origin uint64) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		now := p.clock()
		s := &p.account.reservations
		for i := s.slots[0].next; i != 0; {
			v := s.at(i)
			i = v.next
			if v.from == "" && v.request.Origin == origin && origin != 0 {
				p.expire(v, now)
			}
		}
		p.admission.dispatch(now)
		p.mu.Unlock()
	}
}
