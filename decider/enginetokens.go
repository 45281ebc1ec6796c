package decider

import "time"

// firstTokens follows an engine's own count of first tokens, where it is told.
type firstTokens struct {
	at, before time.Duration // the last report, and the one before that
	told       bool          // there was a report at all
	// credit is how many first tokens the proxy has told that the engine has
	// not counted yet as far as is known, and creditAt when that last grew.
	credit   int
	creditAt time.Duration
}

// countedFor is how long after a report the engine's count is relied on.
const countedFor = 10 * time.Second

// FirstTokens tells that n more requests on the replica of that name have had
// their first token since the last call, by the engine's own count; 0 is news
// as well. Prompts are computed first in, first out: those are the n oldest
// that have had none as far as is known, less what the proxy has told first.
func (p *Pool) FirstTokens(replica string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.freed(p.clock()) }()
	r := p.byName[replica]
	if r == nil {
		return
	}
	now := p.clock()
	f := &r.firsts
	f.before, f.at, f.told = f.at, now, true
	known := min(n, f.credit)
	f.credit -= known
	r.window.told += n
	p.begin(r, n-known, now)
	if r.prefill.n == 0 && f.creditAt < f.before {
		f.credit = 0 // nothing can be owed for so long
	}
}

// Awaiting is the number of requests on the replica of that name whose first
// token is not known to have come.
func (p *Pool) Awaiting(replica string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byName[replica]; r != nil {
		return r.waiting
	}
	return 0
}

// begin notes the first tokens of the n oldest requests in r's queue.
func (p *Pool) begin(r *Replica, n int, now time.Duration) {
	if n <= 0 || r.prefill.n == 0 {
		return
	}
	p.load.oldestDone(r, n, now, func(v *reservation) {
		p.start(v, now-v.at, now)
		p.renew(v, now)
	})
}

// countsFirstTokens reports whether r's engine tells how many first tokens there were.
func (r *Replica) countsFirstTokens(now time.Duration) bool {
	return r.firsts.told && now-r.firsts.at < countedFor
}

// owe notes that the first token of a request on r is known from the proxy:
// the engine's count of it tells of no other.
func (r *Replica) owe(now time.Duration) {
	if r.countsFirstTokens(now) {
		r.firsts.credit++
		r.firsts.creditAt = now
	}
}
