package decider

import "time"

// Each replica's prefill queue is predicted: the requests sent to it whose
// first token has not come, in the order in which they were sent, which is the
// order in which engines compute prompts. Work is measured in tokens at the
// cost of the first token of a prompt.

// attentionDepth is the position at which attention doubles what a prompt
// token costs, about 44,000 for a dense model of 70B parameters and 26,000
// for one of 8B.
const attentionDepth = 40_000

// prefillWork is the work of the last uncached tokens of a prompt of input
// tokens.
func prefillWork(uncached, input int) float64 {
	u := float64(uncached)
	return u * (1 + (float64(input)-u/2)/attentionDepth)
}

// firstSpeed is the prefill speed, in tokens/s, that a pool starts from.
const firstSpeed = 10_000

// The speed of a replica is its work over its busy time, both decayed by
// speedMemory of busy time, drawn to the pool's mean as if that had been
// measured for speedPrior. A single sample counts for at most sampleSpread
// times more or less than what was known, and for a quarter of the memory:
// lengths are what clients claim.
const (
	speedMemory  = 120.0 // seconds
	speedPrior   = 20.0  // seconds
	sampleSpread = 8
)

// headDone is the share of a prompt that is taken to be done at most before
// its first token is told.
const headDone = 0.95

// meter learns a speed from samples of work and time.
type meter struct{ work, seconds float64 }

// add takes in a sample, given the speed expected.
func (m *meter) add(work, seconds, expected float64) {
	if !(work > 0) || !(seconds >= 0) {
		return
	}
	seconds = min(max(seconds, work/expected/sampleSpread), work/expected*sampleSpread)
	if seconds > speedMemory/4 {
		work, seconds = work*speedMemory/4/seconds, speedMemory/4
	}
	keep := 1 - seconds/speedMemory
	m.work = m.work*keep + work
	m.seconds = m.seconds*keep + seconds
}

// speed is what was learned, drawn to prior.
func (m *meter) speed(prior float64) float64 {
	return (m.work + speedPrior*prior) / (m.seconds + speedPrior)
}

// work is a reservation's part in the queue of its replica.
type work struct {
	queued        bool
	ahead, behind int32   // neighbours; 0 = none
	uncached      int     // prompt tokens that are
	tokens        float64 // its own work
	backlog       float64 // work until its first token, as it was sent
	long          bool    // it counts in prefillQueue.bands,
	band          int     // there
	told          bool    // its first token was told when it came, not with the end
	measured      bool    // the time of its first token has been learned from
}

// tellingEnds is how long first tokens are waited for while none at all is told
// in the pool: then what tells them is dead, and the clock must do.
const tellingEnds = time.Minute

// prefillQueue is the predicted queue of one replica.
type prefillQueue struct {
	first, last int32 // reservations; 0 = none
	n           int
	uncached    int           // prompt tokens of all in the queue
	work        float64       // of all in the queue
	bands       [maxBands]int // of these, long prompts by their bands
	since       time.Duration // when the first one was begun
	measured    time.Duration // since when done is counted
	done        float64       // work that has left the queue since measured
	meter       meter
}

// speed is the replica's prefill speed in tokens/s.
func (p *Pool) speed(r *Replica) float64 {
	return r.prefill.meter.speed(p.meter.speed(firstSpeed))
}

// at is the reservation in slot i.
func (s *reservations) at(i int32) *reservation { return &s.slots[i] }

// enqueue puts v at the end of its replica's queue, unless its first token has
// come.
func (p *Pool) enqueue(v *reservation, now time.Duration) {
	v.work = work{}
	if v.started {
		return
	}
	p.advance(v.replica, now)
	q, i := &v.replica.prefill, p.reservations.index(v)
	if q.n == 0 {
		*q = prefillQueue{first: i, since: now, measured: now, meter: q.meter}
	} else {
		p.reservations.at(q.last).work.behind = i
	}
	uncached := v.input - p.cached(v)
	v.work = work{queued: true, ahead: q.last, uncached: uncached, tokens: prefillWork(uncached, v.input)}
	if v.work.long = v.work.tokens > roomTokens; v.work.long {
		v.work.band = min(v.request.Band, maxBands-1)
		q.bands[v.work.band]++
	}
	q.last = i
	q.n++
	q.uncached += uncached
	q.work += v.work.tokens
	p.demand.add(v.work.tokens, now)
	v.work.backlog = p.backlog(v.replica, now)
}

// cached is how many of the request's prompt tokens its replica has already.
func (p *Pool) cached(v *reservation) int {
	c := v.replica.cache
	if c == nil {
		return 0
	}
	return max(0, min(c.Match(v.request.Blocks)*p.view.BlockTokens, v.input-1))
}

// dequeue takes v out of the queue of its replica, if it is there.
func (p *Pool) dequeue(v *reservation, now time.Duration) {
	w := &v.work
	if !w.queued {
		return
	}
	q := &v.replica.prefill
	if w.ahead == 0 {
		q.first, q.since = w.behind, now
	} else {
		p.reservations.at(w.ahead).work.behind = w.behind
	}
	if w.behind == 0 {
		q.last = w.ahead
	} else {
		p.reservations.at(w.behind).work.ahead = w.ahead
	}
	w.queued = false
	if w.long {
		q.bands[w.band]--
	}
	q.n--
	q.uncached -= w.uncached
	q.work -= w.tokens
}

// advance takes out of r's queue what must be done by the clock, of requests
// whose first token is not told.
func (p *Pool) advance(r *Replica, now time.Duration) {
	q := &r.prefill
	for q.n > 0 {
		v := p.reservations.at(q.first)
		if p.tells(v, now) {
			return
		}
		done := q.since + time.Duration(v.work.tokens/p.speed(r)*float64(time.Second))
		if done > now {
			return
		}
		q.done += v.work.tokens
		p.dequeue(v, done)
	}
}

// tells reports whether v's first token will be told when it comes: by the
// engine, or by the proxy, to whom the first byte of an answer that is not
// streamed is also its last.
func (p *Pool) tells(v *reservation, now time.Duration) bool {
	return v.replica.counted(now) || v.request.Stream && p.told >= 0.5 && now-p.toldAt < tellingEnds
}

// backlog is the work that r has before it, without what it must have done of
// the first request since it began that.
func (p *Pool) backlog(r *Replica, now time.Duration) float64 {
	p.advance(r, now)
	q := &r.prefill
	if q.n == 0 {
		return 0
	}
	head := p.reservations.at(q.first).work.tokens
	return max(0, q.work-min(headDone*head, p.speed(r)*(now-q.since).Seconds()))
}

// measure notes that v's first token is told at now, and learns from it.
func (p *Pool) measure(v *reservation, now time.Duration) {
	v.work.told = true
	r := v.replica
	q := &r.prefill
	if !v.work.queued || !v.request.Stream {
		p.dequeue(v, now)
		return
	}
	p.proxyTells(now)
	// Prompts are computed in turn: those ahead whose first token is not told
	// are done as well.
	for i := v.work.ahead; i != 0; {
		before := p.reservations.at(i)
		i = before.work.ahead
		if !p.tells(before, now) {
			q.done += before.work.tokens
			p.dequeue(before, now)
		}
	}
	p.dequeue(v, now)
	p.learn(r, q.done+v.work.tokens, (now - q.measured).Seconds())
	q.measured, q.done = now, 0
}

// proxyTells notes that the proxy has told of a first token when it came.
func (p *Pool) proxyTells(now time.Duration) {
	p.told += (1 - p.told) / 2
	p.toldAt = now
}

// learn takes in that r did work in seconds.
func (p *Pool) learn(r *Replica, work, seconds float64) {
	speed := p.speed(r)
	p.meter.add(work, seconds, speed)
	r.prefill.meter.add(work, seconds, speed)
}

// heard notes, as v ends, that its first token had not been told, and learns
// from its time if that is told now.
func (p *Pool) heard(v *reservation, o Outcome) {
	if !v.request.Stream || v.work.told || v.decided == nil || o.End != Served {
		return
	}
	p.told -= p.told / 4
	if o.TTFT > v.waited && !v.work.measured {
		p.learn(v.replica, v.work.backlog, (o.TTFT - v.waited).Seconds())
	}
}
