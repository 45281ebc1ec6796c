package decider

import (
	"math"
	"time"
)

// loadEstimate predicts each replica's prefill queue: the requests sent to it whose first
// token has not come, in the order in which they were sent, which is the order in which
// engines compute prompts. The unit of cost is the first token of a prompt. It lives under
// the pool's lock.
type loadEstimate struct {
	reservations *reservations
	speed        rateEstimator // of prefill, all replicas together
	tiers        tierSpeeds    // from slower tiers of KV caches
	demand       demand        // of prefill
	typical      float64       // prefill cost of a request, a mean of the last ones
	lengths      lengths       // how that cost is spread over requests
	used         float64       // the last result of use,
	usedAt       time.Duration // and when; 0 = never
	fadedAt      time.Duration // when forget was called

	// reported is the share of streamed answers whose first token the proxy
	// reports when it comes, reportedAt when it last reported one.
	reported   float64
	reportedAt time.Duration
}

// attentionDepth is the position at which attention doubles what a prompt
// token costs, about 44,000 for a dense model of 70B parameters and 26,000
// for one of 8B.
const attentionDepth = 40_000

// prefillCost is the cost of the last uncached tokens of a prompt of input
// tokens.
func prefillCost(uncached, input int) float64 {
	u := float64(uncached)
	return u * (1 + (float64(input)-u/2)/attentionDepth)
}

// typicalOver is over how many requests the typical prefill cost is a mean.
const typicalOver = 512

// initialSpeed is the prefill speed, in tokens/s, that a pool starts from.
const initialSpeed = 10_000.0

// headDone is the largest share of a prompt that is assumed to be done before its first
// token is reported.
const headDone = 0.95

// prefill is a reservation's part in the prefill queue of its replica.
type prefill struct {
	queued        bool
	overdue       bool    // it left the queue before its first token: the engine had begun it
	ahead, behind int32   // neighbours; 0 = none
	uncached      int     // prompt tokens to compute
	cost          float64 // of these
	backlog       float64 // cost until its first token, as it was sent
	long          bool    // it counts in prefillQueue.long,
	band          int     // there
	reported      bool    // the proxy reported its first token when it came, not with the end
	passed        uint8   // first tokens of requests behind it that came before its own
	measured      bool    // the time of its first token has been learned from
}

// reportsExpire is how long the pool waits for a report of any first token before the clock
// takes over: the reporter is dead.
const reportsExpire = time.Minute

// overdueAfter is how long after one and a half times its predicted time a first token
// counts as lost, if the engine reports no waiting requests.
const overdueAfter = 250 * time.Millisecond

// overtaken is how many requests behind it must have had their first tokens before that of
// a request counts as lost: some engines now and then compute a prompt before an earlier
// one. If the engine counts first tokens, its next count removes the request instead.
const overtaken = 2

// prefillQueue is the predicted queue of one replica.
type prefillQueue struct {
	first, last int32 // reservations; 0 = none
	n           int
	cost        float64       // of all in the queue
	since       time.Duration // when the first one was begun
	speed       rateEstimator
	uncached    int           // prompt tokens of all in the queue
	measured    time.Duration // since when done is counted
	done        float64       // cost that has left the queue since measured
	long        [maxBands]int // long prompts in it, by band
}

// speedNoise is the ratio within which the speed of a replica counts as equal to the
// pool's. Otherwise equal idle replicas would never tie, and one of them would get all
// requests.
const speedNoise = 1.1

// speedOf is the replica's prefill speed in tokens/s: its own if it really differs
// from the pool's.
func (l *loadEstimate) speedOf(r *Replica) float64 { return r.prefill.speedNear(l.poolSpeed()) }

// speedNear is speedOf in a pool of that speed.
func (q *prefillQueue) speedNear(pool float64) float64 {
	if q.speed.isNear(pool) {
		return pool
	}
	if own := q.speed.rate(pool); own > pool*speedNoise || own*speedNoise < pool {
		return own
	}
	return pool
}

// poolSpeed is the prefill speed of a replica, learned from all together.
func (l *loadEstimate) poolSpeed() float64 { return l.speed.rate(initialSpeed) }

// totalSpeed is the prefill speed of all open replicas together, or of the one
// that may come.
func (l *loadEstimate) totalSpeed(m *members) (sum float64) {
	if len(m.open) == 0 {
		return l.poolSpeed()
	}
	for _, i := range m.open {
		sum += l.speedOf(m.replicas[i])
	}
	for _, i := range m.prefillers {
		sum += l.speedOf(m.replicas[i])
	}
	return max(sum, 1)
}

// use is the share of the open replicas' prefill speed that requests ask for, 0 to 1, as of
// the last second.
func (l *loadEstimate) use(m *members, now time.Duration) float64 {
	if l.usedAt == 0 || now-l.usedAt >= time.Second {
		l.used, l.usedAt = min(1, l.demand.rate(now)/l.totalSpeed(m)), max(now, 1)
	}
	return l.used
}

// speedKept is the time in which learned speeds decay to 1/e without traffic: otherwise a
// replica that is avoided because it was slow would never be tried again.
const speedKept = 10 * time.Minute

// forget decays learned speeds with time.
func (l *loadEstimate) forget(replicas []*Replica, now time.Duration) {
	keep := math.Exp(-float64(now-l.fadedAt) / float64(speedKept))
	l.fadedAt = now
	l.speed.fade(keep)
	for k := range l.tiers {
		l.tiers[k].fade(keep)
	}
	for _, r := range replicas {
		r.prefill.speed.fade(keep)
	}
}

// count counts a request of that prefill cost in what is known of the pool's traffic. A held
// request counts when it arrives. Long requests are held the longest, so if they counted when
// they are sent, the mean would fall while they are held and jump when the first is sent.
func (l *loadEstimate) count(cost float64, now time.Duration) {
	l.demand.add(cost, now)
	l.lengths.add(cost)
	if l.typical == 0 {
		l.typical = cost
	}
	l.typical += (cost - l.typical) / typicalOver
}

// enqueue puts v, with so many uncached prompt tokens, at the end of its
// replica's queue, unless its first token has come.
func (l *loadEstimate) enqueue(v *reservation, uncached int, now time.Duration) {
	v.prefill = prefill{}
	if v.started {
		return
	}
	l.advance(v.replica, now)
	q, i := &v.replica.prefill, l.reservations.index(v)
	if q.n == 0 {
		q.first, q.since, q.measured = i, now, now
		q.cost, q.done = 0, 0 // rounding leaves a rest of cost
	} else {
		l.reservations.at(q.last).prefill.behind = i
	}
	v.prefill = prefill{queued: true, ahead: q.last, uncached: uncached, cost: prefillCost(uncached, v.input)}
	if v.prefill.long = v.prefill.cost > prefillAhead; v.prefill.long {
		v.prefill.band = min(v.request.Band, maxBands-1)
		q.long[v.prefill.band]++
	}
	q.last = i
	q.n++
	q.uncached += uncached
	q.cost += v.prefill.cost
	if !v.request.counted {
		l.count(v.prefill.cost, now)
	}
	v.prefill.backlog = l.backlog(v.replica, now)
}

// dequeue takes v out of the queue of its replica, if it is in it.
func (l *loadEstimate) dequeue(v *reservation, now time.Duration) {
	w := &v.prefill
	if !w.queued {
		return
	}
	q := &v.replica.prefill
	if w.ahead == 0 {
		q.first, q.since = w.behind, now
	} else {
		l.reservations.at(w.ahead).prefill.behind = w.behind
	}
	if w.behind == 0 {
		q.last = w.ahead
	} else {
		l.reservations.at(w.behind).prefill.ahead = w.ahead
	}
	w.queued = false
	if w.long {
		q.long[w.band]--
	}
	q.n--
	q.uncached -= w.uncached
	q.cost -= w.cost
}

// advance removes requests from r's queue that must be done by now, if their first tokens
// are not reported, or were lost.
func (l *loadEstimate) advance(r *Replica, now time.Duration) {
	q := &r.prefill
	for q.n > 0 {
		v := l.reservations.at(q.first)
		if l.isReported(v, now) {
			if !l.begun(r, now) {
				return
			}
			l.dequeue(v, now)
			v.prefill.overdue = true
			continue
		}
		done := q.since + time.Duration(v.prefill.cost/l.speedOf(r)*float64(time.Second))
		if done > now {
			return
		}
		q.done += v.prefill.cost
		l.dequeue(v, done)
	}
}

// begun reports whether r's engine must have computed the first request of its
// queue, although its first token was not reported: it is overdue, and the engine has
// begun those behind it, or all.
func (l *loadEstimate) begun(r *Replica, now time.Duration) bool {
	s, q := &r.signals, &r.prefill
	if !s.Known || now-s.At > signalsKept || s.At < q.since {
		return false
	}
	if s.Waiting > 0 && min(q.n, int(r.atSignals.waiting))-s.Waiting < 2 {
		return false
	}
	expected := seconds(l.reservations.at(q.first).prefill.cost / l.speedOf(r))
	return now-q.since > expected+expected/2+overdueAfter
}

// isReported reports whether v's first token is reported when it comes: by the
// engine, or by the proxy, to which the first byte of an answer that is not
// streamed is also its last.
func (l *loadEstimate) isReported(v *reservation, now time.Duration) bool {
	return v.replica.countsFirstTokens(now) || v.request.Stream && l.reported >= 0.5 && now-l.reportedAt < reportsExpire
}

// backlog is the prefill cost queued on r, less the part of the first request that it must
// have done since it began it.
func (l *loadEstimate) backlog(r *Replica, now time.Duration) float64 {
	l.advance(r, now)
	q := &r.prefill
	if q.n == 0 {
		return 0
	}
	head := l.reservations.at(q.first).prefill.cost
	return max(0, q.cost-min(headDone*head, l.speedOf(r)*(now-q.since).Seconds()))
}

// firstToken notes that the proxy reports v's first token at now, and learns
// from it. Where no request waits, a slow replica's speed is learned from overdue ones. They
// show how long they took only if no other first token has come since they were sent.
func (l *loadEstimate) firstToken(v *reservation, now time.Duration) {
	v.prefill.reported = true
	r := v.replica
	q := &r.prefill
	if !v.request.Stream || !v.prefill.queued && (!v.prefill.overdue || q.measured > v.at) {
		l.dequeue(v, now)
		return
	}
	l.proxyReported(now)
	// Prompts are computed in turn: those ahead whose first token is not
	// reported, or was lost, are done as well.
	for i := v.prefill.ahead; i != 0; {
		before := l.reservations.at(i)
		i = before.prefill.ahead
		before.prefill.passed++
		lost := before.prefill.passed >= overtaken && !r.countsFirstTokens(now)
		if lost || !l.isReported(before, now) {
			q.done += before.prefill.cost
			l.dequeue(before, now)
		}
	}
	l.dequeue(v, now)
	if took := (now - q.measured).Seconds(); !l.learnTransfer(v, took, q.done == 0 && v.prefill.backlog <= v.prefill.cost) {
		l.learn(r, q.done+v.prefill.cost, took)
	}
	q.measured, q.done = now, 0
}

// proxyReported notes that the proxy reported a first token when it came.
func (l *loadEstimate) proxyReported(now time.Duration) {
	l.reported += (1 - l.reported) / 2
	l.reportedAt = now
}

// oldestDone takes the n oldest requests, at least one, out of r's queue, whose
// first tokens the engine has counted by now, and calls started with each.
func (l *loadEstimate) oldestDone(r *Replica, n int, now time.Duration, started func(v *reservation)) {
	q := &r.prefill
	// Speed is measured only if requests remain: otherwise the engine may have finished at
	// any time since its last report.
	measured, copied := n < q.n, false
	for ; n > 0 && q.n > 0; n-- {
		v := l.reservations.at(q.first)
		q.done += v.prefill.cost
		l.dequeue(v, now)
		v.prefill.measured = measured
		copied = l.learnTransfer(v, 0, false) || copied
		started(v)
	}
	if measured && !copied {
		l.learn(r, q.done, (now - q.measured).Seconds())
	}
	q.measured, q.done = now, 0
}

// learn notes that r did prefill of that cost in seconds.
func (l *loadEstimate) learn(r *Replica, cost, seconds float64) {
	speed := l.speedOf(r)
	l.speed.add(cost, seconds, speed)
	r.prefill.speed.add(cost, seconds, speed)
}

// ended handles the end of v if its first token was not reported when it came, and learns
// from its time if that is reported now.
func (l *loadEstimate) ended(v *reservation, o Outcome) {
	if !v.request.Stream || v.prefill.reported || v.decided == nil || o.End != Served || !o.computed() {
		return
	}
	l.reported -= l.reported / 4
	if o.TTFT > v.waited && !v.prefill.measured {
		if took := (o.TTFT - v.waited).Seconds(); !l.learnTransfer(v, took, v.prefill.backlog <= v.prefill.cost) {
			l.learn(v.replica, v.prefill.backlog, took)
		}
	}
}
