package decider

import "time"

// places is what is known of the sequences that an engine runs at one time. Engines do not
// report how many they run at most. A request beyond them waits until another one ends. It
// lives under the pool's lock.
type places struct {
	most concurrency // sequences that it ran while requests waited for a place
	ends demand      // requests that ended after an engine had begun them
}

// memoryFree is the share of a cache up to which no request waits for memory.
const memoryFree = 0.95

// findPlaces learns from what r's engine has just reported. It has no place if requests wait
// for longer than their prompts take, although it computes no prompt and has memory.
func (l *loadEstimate) findPlaces(r *Replica, now time.Duration) {
	s, q, most := &r.signals, &r.prefill, &r.places.most
	if s.Running > most.found {
		*most = concurrency{} // it is no limit
	}
	if s.Running <= 0 || s.Waiting <= 0 || q.n == 0 || r.waiting != s.Waiting {
		return
	}
	if foreign := s.Running - (r.inFlight - r.waiting); foreign > 1 {
		return // it may compute their prompts; one may be ours, and have ended
	}
	// The first in line may be one that lost its memory, and as large as those that run.
	head, size := l.reservations.at(q.first), float64(r.CacheTokens())
	inUse := s.KVUsage * size
	if !(inUse+inUse/float64(s.Running)+float64(head.input) <= memoryFree*size) {
		return
	}
	if expected := seconds(head.prefill.cost / l.speedOf(r)); now-q.since > expected+expected/2+overdueAfter {
		*most = concurrency{s.Running, now}
	}
}

// PlaceWait estimates for how many seconds a request waits until the replica's engine has a
// place for it, beside so many others. It is 0 unless the engine was seen to run no more
// sequences.
func (r *Replica) PlaceWait(others float64, now time.Duration) float64 {
	if r.places.most.found == 0 {
		return 0
	}
	return r.places.wait(others, now)
}

// wait is PlaceWait where the engine was seen to run no more.
func (p *places) wait(others float64, now time.Duration) float64 {
	most := p.most.limit(now)
	if beyond := others + 1 - float64(most); most > 0 && beyond > 0 {
		return beyond / max(p.ends.rate(now), 1/demandMemory.Seconds())
	}
	return 0
}
