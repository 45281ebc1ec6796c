package decider

import "time"

// firstTokens follows an engine's own count of first tokens, where it reports one.
type firstTokens struct {
	at, before time.Duration // the last report, and the one before that
	some       bool          // there was a report at all
	// credit is how many first tokens the proxy has reported that the engine has
	// not counted yet, as far as is known, and creditAt when that last grew.
	credit   int
	creditAt time.Duration
	// remote is how many of the first tokens it has counted belong to requests whose
	// prompts were computed elsewhere, as far as is known.
	remote int
}

// countedFor is how long the engine's count is trusted after a report.
const countedFor = 10 * time.Second

// FirstTokens reports that n more requests have had their first token since the last call,
// by the engine's own count; 0 is a report as well. Prompts are computed first in, first
// out: the n are the oldest requests whose first token is not known, minus those that the
// proxy reported first.
func (e Engine) FirstTokens(n int) {
	p, r := e.lock()
	defer p.mu.Unlock()
	defer func() { p.admission.dispatch(p.clock()) }()
	if r == nil {
		return
	}
	now := p.clock()
	f := &r.firstTokens
	f.before, f.at, f.some = f.at, now, true
	known := min(n, f.credit)
	f.credit -= known
	r.promptWindow.first += n
	if others := min(n-known, r.remote-f.remote); others > 0 {
		f.remote += others // which of them is not known
		known += others
	}
	if n > known && r.prefill.n > 0 {
		p.load.oldestDone(r, n-known, now, func(v *reservation) {
			if v.leg {
				p.legs.computed(p, v, now)
				return
			}
			p.start(v, now-v.at, now)
			p.renew(v, now)
		})
	}
	if r.prefill.n == 0 && f.creditAt < f.before {
		f.credit = 0 // no count is that late
	}
}

// AwaitingFirstToken is the number of requests on the replica whose first token
// is not known to have come.
func (e Engine) AwaitingFirstToken() int {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r != nil {
		return r.waiting
	}
	return 0
}

// countsFirstTokens reports whether r's engine reports its count of first tokens.
func (r *Replica) countsFirstTokens(now time.Duration) bool {
	return r.firstTokens.some && now-r.firstTokens.at < countedFor
}

// creditFirstToken notes that the proxy has reported the first token of v, which the
// count of its engine will include, or has included already.
func creditFirstToken(v *reservation, now time.Duration) {
	r := v.replica
	if v.remote && r.firstTokens.remote > 0 {
		r.firstTokens.remote--
		return
	}
	if r.countsFirstTokens(now) {
		r.firstTokens.credit++
		r.firstTokens.creditAt = now
	}
}
