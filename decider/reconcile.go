package decider

import "time"

const (
	// lostAfter is for how long a replica must hold fewer requests than are reserved
	// on it before the difference is taken for outcomes that were lost.
	lostAfter = 4 * time.Second
	// reportGap is the longest time between two of the reports that are compared.
	// After a longer one, as when the process was stopped, the feed gets another
	// lostAfter to catch up.
	reportGap = 6 * time.Second
	// doubtFor is how long nothing is taken for lost after some of it was reported
	// after all. It doubles each time, up to doubtMost.
	doubtFor  = 30 * time.Second
	doubtMost = time.Hour
)

// shortfall is by how much a replica has held less than is reserved on it.
type shortfall struct {
	since, last time.Duration // of the first and the last report in a row; since 0 = none
	least       int           // the smallest difference
	most        int           // the most requests that the replica held
}

// reclaims follows what was taken for lost. It lives under the pool's lock.
type reclaims struct {
	ids   [256]ID // the last ones
	next  int
	doubt time.Duration // how long the next doubt lasts
	until time.Duration // nothing is reclaimed before
}

func (c *reclaims) add(id ID) {
	c.ids[c.next%len(c.ids)] = id
	c.next++
}

// reported notes that something is reported of a request without a reservation:
// if it was reclaimed, what the replica reported was not all.
func (c *reclaims) reported(id ID, now time.Duration) {
	for i := range c.ids[:min(c.next, len(c.ids))] {
		if c.ids[i] == id {
			c.ids[i] = ID{}
			c.doubt = min(max(2*c.doubt, doubtFor), doubtMost)
			c.until = now + c.doubt
			return
		}
	}
}

// reconcile compares the reservations on r with what r holds now, as its engine
// reports it and the proxy. When r holds fewer for lostAfter, the outcomes of the
// others were lost, as when the agent was stopped or a log line was: those of the
// requests from before that time which were reported least recently end as
// expired. fromEngine says who reports; the proxy alone counts only where the
// engine is silent. The caller holds the lock.
func reconcile(p *Pool, r *Replica, fromEngine bool, now time.Duration) {
	s := &r.shortfall
	held, known := 0, false
	if r.signals.Known && now-r.signals.At < reportGap {
		if !fromEngine {
			return
		}
		held, known = r.signals.Waiting+r.signals.Running, true
	}
	if r.proxyCounts && now-p.statesAt < reportGap {
		held, known = max(held, r.atProxy), true
	} else if p.admission.on() && !p.admission.Hold {
		return // the others may wait in the proxy
	}
	if !known || r.inFlight <= held || now < p.reclaims.until {
		*s = shortfall{}
		return
	}
	if s.since == 0 || now-s.last > reportGap {
		*s = shortfall{since: max(now, 1), least: r.inFlight}
	}
	s.last, s.least, s.most = now, min(s.least, r.inFlight-held), max(s.most, held)
	if now-s.since < lostAfter {
		return
	}
	reclaim(p, r, s, now)
	*s = shortfall{}
}

// reclaim ends the reservations on r that s shows to be lost.
func reclaim(p *Pool, r *Replica, s *shortfall, now time.Duration) {
	list := &p.account.reservations
	old := 0
	for i := list.slots[0].next; i != 0; i = list.at(i).next {
		if v := list.at(i); v.replica == r && v.at < s.since {
			old++
		}
	}
	lost := min(s.least, old-s.most)
	for i := list.slots[0].next; i != 0 && lost > 0; {
		v := list.at(i)
		i = v.next
		if v.replica != r || v.at >= s.since {
			continue
		}
		lost--
		if !p.peers.answers(v.from) { // else its agent sees the same, and reports it
			p.reclaims.add(v.id)
			p.expire(v, now)
		}
	}
}
