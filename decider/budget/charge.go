package budget

import (
	"fmt"
	"math"
	"time"
)

// Charge is what a request was charged, to be settled when it has ended. The zero value
// means that the request was not charged. A Charge is small: each request that waits or
// runs has one.
type Charge struct {
	accounts [MostGroups]uint32 // slots
	gens     [MostGroups]uint16 // of the accounts there; 0 = there is none
	usage    *Usage
	tokens   uint32
	at       uint32 // seconds
}

// Made reports whether the request was charged.
func (c *Charge) Made() bool { return c.usage != nil }

// Forget clears c, whose charge has moved elsewhere.
func (c *Charge) Forget() { *c = Charge{} }

// Verdict is the state of the limits for a request: of the one that is reached, or else of
// the one with the least left.
type Verdict struct {
	Limit     string  `json:"limit"`         // "" = no limit fits the request
	Refused   bool    `json:"refused"`       // the limit is reached
	Window    string  `json:"window"`        // minute or day
	Tokens    int64   `json:"tokens"`        // that the limit allows in the window
	Remaining int64   `json:"remaining"`     // of these, after this request
	Reset     float64 `json:"reset_s"`       // seconds until all of them remain
	Retry     int     `json:"retry_after_s"` // seconds until the request passes, at least 1; only if it is refused
	Reason    string  `json:"-"`             // the message for the client; only if it is refused
}

// String is v for people.
func (v *Verdict) String() string {
	if v.Refused {
		return fmt.Sprintf("refused with 429: %d of %d tokens a %s left (%s), try again in %ds", v.Remaining, v.Tokens, v.Window, v.Limit, v.Retry)
	}
	return fmt.Sprintf("%d of %d tokens a %s left after it (%s), all of them in %.0fs", v.Remaining, v.Tokens, v.Window, v.Limit, v.Reset)
}

// Left is the part of a Verdict that the client gets.
type Left struct {
	Tokens, Remaining int64 // Tokens is 0 where no limit fits the request
	Reset             int   // seconds
}

// Left returns the part of v that the client gets.
func (v *Verdict) Left() Left { return Left{v.Tokens, v.Remaining, int(math.Ceil(v.Reset))} }

// Charge charges a request of that many prompt tokens. If a limit is reached, the request
// is not charged, and the verdict says so, unless it is forced. Charge does not allocate
// for a client that has accounts already.
func (l *Ledger) Charge(c Client, model string, tokens int, forced bool) (ch Charge, v Verdict) {
	t := l.table.Load()
	if t == nil {
		return ch, v
	}
	n := int64(max(0, min(tokens, math.MaxUint32)))
	l.mu.Lock()
	defer l.mu.Unlock()
	now, k := l.clock(), 0
	u := l.usageOf(&c, model)
	for _, group := range t.groups {
		limit := fitting(group, &c, model)
		if limit == nil || k == MostGroups {
			continue
		}
		i := l.open(limit, l.apart(limit, &c, model), limit.isNamed(&c), now)
		ch.accounts[k], ch.gens[k] = i, l.accounts[i].gen
		k++
		l.look(&v, limit, i, n, now)
	}
	if v.Refused && !forced {
		u.Refused++
		t.marked(markOf(v.Limit)).refused++
		return Charge{}, v
	}
	v.Refused = false
	ch.usage, ch.tokens, ch.at = u, uint32(n), uint32(now/time.Second)
	for _, i := range ch.accounts[:k] {
		l.add(i, t.marked(l.accounts[i].key.limit), n, now, now)
	}
	u.Requests++
	u.Input += uint64(n)
	return ch, v
}

// Look returns the verdict of Charge without charging.
func (l *Ledger) Look(c Client, model string, tokens int) (v Verdict) {
	t := l.table.Load()
	if t == nil {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for _, group := range t.groups {
		limit := fitting(group, &c, model)
		if limit == nil {
			continue
		}
		i, ok := l.byKey[accountKey{limit.mark, l.apart(limit, &c, model)}]
		if !ok {
			if i = limit.overflow; l.others < l.most || limit.isNamed(&c) {
				l.lookAt(&v, limit, &account{}, int64(tokens), now)
				continue
			}
		}
		l.look(&v, limit, i, int64(tokens), now)
	}
	return v
}

// fitting is the first limit of a group that fits, or nil.
func fitting(group []*limit, c *Client, model string) *limit {
	for _, limit := range group {
		if limit.fits(c, model) {
			return limit
		}
	}
	return nil
}

// apart returns the id under which a limit counts a request.
func (l *Ledger) apart(limit *limit, c *Client, model string) (id ID) {
	if limit.By&ByKey != 0 {
		id = c.id
	} else if limit.By&ByTenant != 0 {
		id = c.known.tenantID // it fits only those that have one
	}
	if limit.By&ByModel != 0 {
		id = id.with(model)
	}
	return id
}

// isNamed reports whether the configuration bounds the number of such accounts.
func (l *limit) isNamed(c *Client) bool {
	return l.By&ByKey == 0 || c.known != nil || !c.has || c.id == ID{}
}

// marked returns the limit of that mark, nil if it no longer exists.
func (t *table) marked(mark uint64) *limit {
	for _, limit := range t.limits {
		if limit.mark == mark {
			return limit
		}
	}
	return nil
}

// look updates v with an account of a limit, for a request of that many tokens.
func (l *Ledger) look(v *Verdict, limit *limit, i uint32, tokens int64, now time.Duration) {
	l.lookAt(v, limit, &l.accounts[i], tokens, now)
}

func (l *Ledger) lookAt(v *Verdict, limit *limit, a *account, tokens int64, now time.Duration) {
	for w := range windows {
		most := limit.most[w]
		if most == 0 {
			continue
		}
		used := a.total(w, now)
		over := used+tokens > most
		left := max(most-used-tokens, 0)
		wait := time.Duration(0)
		if over {
			left = max(most-used, 0)
			if wait = a.until(w, most-tokens, now); tokens > most {
				wait = w.span()
			}
		}
		if v.Limit != "" && !worse(v, over, wait, float64(left)/float64(most)) {
			continue
		}
		*v = Verdict{Limit: limit.Name, Refused: over, Window: w.String(), Tokens: most, Remaining: left}
		reset := a.until(w, 0, now)
		if !over && tokens > 0 {
			reset = w.slidesOut(now)
		}
		v.Reset = reset.Seconds()
		if over {
			v.Retry = max(1, int(math.Ceil(wait.Seconds())))
			if v.Reason = limit.exhausted[w]; tokens > most {
				v.Reason = limit.tooLarge[w]
			}
		}
	}
}

// worse reports whether a limit is tighter than v: it is reached and the wait is longer, or
// less of it is left.
func worse(v *Verdict, over bool, wait time.Duration, left float64) bool {
	if over != v.Refused {
		return over
	}
	if over {
		return wait.Seconds() > float64(v.Retry)
	}
	return left < float64(v.Remaining)/float64(v.Tokens)
}

// Settle notes how a charged request ended: with that many tokens of output, or free of
// charge, which reverses its charge.
func (l *Ledger) Settle(ch *Charge, output int, free bool) {
	if !ch.Made() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, t := l.clock(), l.table.Load()
	u := ch.usage
	if free {
		u.Free++
		u.Returned += uint64(ch.tokens)
	}
	u.Output += uint64(max(output, 0))
	at := time.Duration(ch.at) * time.Second
	for k, i := range ch.accounts {
		if t == nil || ch.gens[k] == 0 || l.accounts[i].gen != ch.gens[k] {
			continue
		}
		limit := t.marked(l.accounts[i].key.limit)
		if free {
			l.add(i, limit, -int64(ch.tokens), at, now)
		}
		if output > 0 {
			l.add(i, limit, int64(output), now, now)
		}
	}
	*ch = Charge{}
}
