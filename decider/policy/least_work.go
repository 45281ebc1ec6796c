package policy

import "pointsman/decider"

// LeastWork sends a request to the replica with the least predicted work until
// its first token: the backlog there, and the part of the prompt that is not
// cached there, more the more requests the replica has. A request that is long
// for the pool keeps away from replicas that others will come to. What no replica has
// cached goes where it displaces least: where less was computed for the size of the
// cache. Duplicating a prefix is penalised, more so under load, unless the prefix is
// requested so often that several replicas should hold it. It needs no more than what the
// proxy reports, uses what engines report of their load, and is the default.
// Choose another policy if requests have no prompts, or all cost the same.
// Weights do not count: the speed of a replica is learned.
//
//	cost = (queue + own) · (1 + 0.06 use · m) + use · d · own · m / mean + decode + space + pressure
//	space = (1+4n) / (1+(24+500l)h·s) · copied + T · new
//
// in tokens, divided by the prefill speed of the replica. m is the number of requests on
// the replica and mean that of all candidates, use the share of the pool's prefill speed
// that is asked for, d = 0.003 · (own/typical)³, at most 1 where shorter requests have enough other
// replicas (Blocking), T what the replica has computed while all caches turned over once, in
// sizes of its cache, copied what only other replicas have cached, new what none has,
// n the number of requests before their first token per replica, h the
// block request rate above 1 of the first block that the replica lacks, and s the share of
// these requests that it would take over from the replicas that have the block (CopyShare).
// The part of own that another replica has cached counts 1 / (1+l·h·s/10): other
// requests for that prefix will find the copy, if they go on. l = a/(a+t), where a is how
// long they have come and t the time to compute the copy: the requests of one task come at
// once, and wait for the copy like the first. pressure is by how much the wait until the
// replica has memory and a place for the request is longer than queue. The memory that requests
// there and this one need beyond the cache is free when as much of the cache is, which turns
// over in the time that a request stays (Occupancy). A part of what they will need when they have
// grown counts besides. Where answers are long, that and what is in use count less in
// pressure and decode. Ties go to the emptier cache.
type LeastWork struct{}

// weights are what early and late binding do not have in common.
// docs/decisions/0009-externalities.md, 0010-use-of-a-prefix.md, 0012-requests-that-go-on.md,
// 0017-what-is-to-come.md, 0019-the-longest-prompts.md, 0024-what-does-not-fit.md,
// 0026-what-caches-turn-over.md, 0027-who-a-copy-serves.md, 0028-places-of-engines.md,
// 0030-wait-or-compute-again.md, 0032-when-memory-is-free.md and 0033-who-needs-the-replicas.md say how these and the constants
// below were found.
type weights struct {
	// late: a copy serves an equal part of the requests for it, as those that are held are on
	// no replica. Of what none has cached a long prompt counts as a usual one. What attention
	// adds counts in a copy that nobody else asks for, as own does not have it.
	late     bool
	queue    float64 // per token of a copy and request queued on a replica
	crowd    float64 // share of the work that is added per request on the replica, in a pool that is busy
	blocking float64 // of the time that a long prompt keeps others waiting, in such a pool
	long     float64 // the same, times the square of its length in typical ones
	spared   float64 // how many times its own work a prompt delays others at most where these have enough other replicas
}

// early are the weights when a request is sent at once.
var early = weights{queue: 4, crowd: 0.06, long: 0.003, spared: 1}

// Constants of the cost, in early and late binding. The first three lower the price of a copy.
const (
	copyRate    = 24.0  // per request for the block in the last minute that the copy would serve
	copyLasting = 500.0 // the same, for requests that go on
	copyShared  = 0.1   // the same, for the part of own that others have a use for
	perRequest  = 20.0  // tokens per request on the replica: each slows the others
	perToken    = 0.05  // tokens per token in use there, less where answers are long
	perGrowth   = 0.2   // tokens per token that will not fit when the requests there have grown, less where answers are long
)

// growsBy is the output that running requests are assumed to have still to come, as a
// multiple of what they have generated. Under steady traffic the factor is 1, and it is
// larger while the load grows.
const growsBy = 3

// fullCache is the share of the cache that may be in use before it evicts what is
// needed.
const fullCache = 0.95

var leastWorkTerms = []string{"queue", "own", "crowd", "blocking", "decode", "space", "pressure", "speed", "cost"}

// Terms implements Termed: queue to pressure are summands in tokens, speed is in
// tokens/s, and cost in seconds.
func (LeastWork) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWork) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWork) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	return leastWork(r, v, dst, &early)
}

// ownRate is the block request rate that a conversation causes by itself, by its
// last turn. Its return does not mean that another replica needs the prefix.
const ownRate = 1.0

// leastWork ranks by least work.
func leastWork(r *decider.Request, v *decider.View, dst []int, w *weights) []int {
	queued := 0
	for _, i := range v.Candidates {
		queued += v.PrefillQueueLen(i)
	}
	n := float64(len(v.Candidates))
	copying, use := 1+w.queue*float64(queued)/n, v.PrefillUse()
	crowds := w.crowd * use
	best, occupancy := v.BestCached(), v.Occupancy()
	stay, grows := occupancy.Stay, growsBy*occupancy.Generated
	// Where half of the tokens in flight are generated, requests count, and not how far they are.
	short := max(0, min(1, 2-4*occupancy.OutputShare))
	perToken, perGrowth := perToken*short, perGrowth*short
	fresh := float64(max(0, r.Input-best)) // what no replica has cached
	if w.late {
		fresh = min(fresh, v.TypicalCost())
	}
	var l decider.Load
	return v.LeastEmptiest(dst, 3, func(c int, replica *decider.Replica) float64 {
		i := v.Candidates[c]
		v.Load(i, &l)
		cached, deep := v.Cached(i), 0.0
		queue, m, speed := l.Backlog, l.Requests, l.Speed
		work := float64(r.Input - cached)
		if !w.late {
			work = v.CostAfter(cached)
		}
		space := replica.Turnover() * fresh
		if lacks := best - cached; lacks > 0 {
			rate, age := v.BlockRequests(i)
			uses, missing := max(0, rate-ownRate), v.DuplicateCost(i)
			switch {
			case w.late:
				uses /= n
			case uses > 0:
				uses *= v.CopyShare(i)
			}
			lasts := age / (age + missing/speed)
			space += copying / (1 + (copyRate+copyLasting*lasts)*uses) * float64(lacks)
			if w.late {
				others := max(0, v.LastBlockRequests()-ownRate) / n
				deep = max(0, missing-float64(lacks)) / (1 + (copyRate+copyLasting*lasts)*others)
			}
			work -= min(work, missing) * (1 - 1/(1+copyShared*lasts*uses))
		}
		crowd, blocking := 0.0, 0.0
		if m > 0 {
			length := v.Length(work)
			crowd = (queue + work) * crowds * m
			blocking = use * v.Blocking(m, work, length*(w.blocking+w.long*length*length), w.spared)
		}
		work += deep // crowd and blocking stay in tokens
		decode := perRequest*m + perToken*l.InUse
		full := fullCache * l.CacheTokens
		prompt := float64(r.Input - v.SharedBlocks(i)*v.BlockTokens) // shared blocks take space once
		wait := replica.PlaceWait(m, v.Now)
		if lacking := l.Needed + prompt - full; lacking > 0 && full > 0 {
			wait = max(wait, stay*lacking/full)
		}
		pressure := 0.0
		if wait > 0 {
			pressure = max(0, wait*speed-queue)
		}
		growth := m * grows
		if lacking := l.InUse + prompt + growth - full; lacking > 0 {
			pressure += perGrowth * min(growth, lacking)
		}
		cost := (queue + work + crowd + blocking + decode + space + pressure) / speed
		t := (*[9]float64)(v.Row(c))
		t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8] = queue, work, crowd, blocking, decode, space, pressure, speed, cost
		return cost
	})
}

var (
	_ decider.Policy     = LeastWork{}
	_ decider.Termed     = LeastWork{}
	_ decider.PrefixUser = LeastWork{}
)
