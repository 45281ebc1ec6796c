package budget

import (
	"slices"
	"time"
)

// Report is what one agent has counted on one account. Each agent reports its own sums
// and nobody else's, so that a lost or repeated report does no harm.
type Report struct {
	Limit uint64 // stands for the limit
	ID    ID
	Used  [2]int64 // within the windows, by Window
}

const (
	// republishAfter is how long until an account in use is reported again, for agents that
	// have missed it.
	republishAfter = 20 * time.Second
	// lookedAt is how many accounts each call of Reports looks at, besides those that have
	// changed.
	lookedAt = 512
	// mostAgents bounds the other agents.
	mostAgents = 256
)

// Reports appends the usage to publish to other agents, of at most that many accounts.
func (l *Ledger) Reports(dst []Report, most int) []Report {
	if !l.On() {
		return dst
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, end := l.clock(), len(dst)+most
	n := min(len(l.changed), most)
	for _, i := range l.changed[:n] {
		dst = l.accounts[i].report(dst, now)
	}
	l.changed = slices.Delete(l.changed, 0, n)
	for range min(lookedAt, len(l.accounts)) {
		if len(dst) == end {
			break
		}
		l.scanned = (l.scanned + 1) % len(l.accounts)
		dst = l.accounts[l.scanned].report(dst, now)
	}
	return dst
}

// report appends the local usage of a, unless it was published already.
func (a *account) report(dst []Report, now time.Duration) []Report {
	a.changed = false
	if a.key == (accountKey{}) {
		return dst
	}
	r := Report{Limit: a.key.limit, ID: a.key.id}
	for w := range windows {
		a.used[w].advance(w, now)
		r.Used[w] = a.used[w].sum
	}
	if r.Used == a.published && (r.Used == [2]int64{} || now-a.publishedAt < republishAfter) {
		return dst
	}
	a.published, a.publishedAt = r.Used, now
	return append(dst, r)
}

// Receive applies the reports of another agent.
func (l *Ledger) Receive(agent string, reports []Report) {
	t := l.table.Load()
	if t == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	from := slices.Index(l.agents, agent)
	if from < 0 {
		if len(l.agents) == mostAgents {
			return
		}
		from = len(l.agents)
		l.agents = append(l.agents, agent)
	}
	now := l.clock()
	for i := range reports {
		l.receive(t, uint16(from), &reports[i], now)
	}
}

func (l *Ledger) receive(t *table, from uint16, r *Report, now time.Duration) {
	limit := t.marked(r.Limit)
	if limit == nil {
		return // the other has limits that this agent does not have
	}
	i, ok := l.byKey[accountKey{r.Limit, r.ID}]
	if !ok {
		if r.Used == [2]int64{} {
			return
		}
		if i = l.open(limit, r.ID, t.keys[r.ID] != nil, now); i == limit.overflow {
			return
		}
	}
	a := &l.accounts[i]
	at := slices.IndexFunc(a.others, func(s share) bool { return s.agent == from })
	if at < 0 {
		a.others = append(a.others, share{agent: from})
		at = len(a.others) - 1
	}
	s := &a.others[at]
	s.at = now
	for w := range windows {
		s.used[w] = 0
		if limit.most[w] > 0 {
			s.used[w] = min(max(r.Used[w], 0), mostTokens)
		}
	}
}
