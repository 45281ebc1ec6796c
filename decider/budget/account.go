package budget

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// ID is a salted hash of a key, or of anything else that is counted apart.
type ID [16]byte

// saltBytes is the length of a ledger's salt.
const saltBytes = sha256.Size

// idOf is the id of a key whose SHA-256 is sum.
func (l *Ledger) idOf(sum *[sha256.Size]byte) (id ID) {
	var b [saltBytes + sha256.Size]byte
	copy(b[:], l.salt[:])
	copy(b[saltBytes:], sum[:])
	h := sha256.Sum256(b[:])
	copy(id[:], h[:])
	return id
}

// with is the id of i combined with a name.
func (i ID) with(name string) ID {
	h := xxhash.Sum64String(name) | 1
	a, b := binary.LittleEndian.Uint64(i[:]), binary.LittleEndian.Uint64(i[8:])
	a = (a ^ h) * 0x9e3779b97f4a7c15
	b = (b ^ a>>29 ^ h<<1) * 0xbf58476d1ce4e5b9
	a ^= b >> 31
	binary.LittleEndian.PutUint64(i[:], a)
	binary.LittleEndian.PutUint64(i[8:], b)
	return i
}

func markOf(name string) uint64 { return xxhash.Sum64String(name) }

// accountKey identifies an account: a limit, and the id that it counts apart.
type accountKey struct {
	limit uint64
	id    ID
}

// account is what one client, tenant or model, or several of these together, have
// used under a limit.
type account struct {
	key         accountKey
	gen         uint16 // counts the uses of the slot; 0 = it had none
	named       bool   // its id is that of something with a name
	used        [windows]counter
	others      []share // used at other agents
	changed     bool    // since it was last published
	published   [windows]int64
	publishedAt time.Duration
}

// share is what clients used at another agent, by its own report.
type share struct {
	agent uint16 // in Ledger.agents
	used  [windows]int64
	at    time.Duration
}

// stale is how long another agent's report on a window is valid: after that, none of it is
// in the window.
func (w Window) stale() time.Duration { return w.span() + w.step() }

// total is what is used here and at other agents.
func (a *account) total(w Window, now time.Duration) int64 {
	a.used[w].advance(w, now)
	return a.used[w].sum + a.elsewhere(w, now)
}

// elsewhere is what is used at other agents.
func (a *account) elsewhere(w Window, now time.Duration) (sum int64) {
	for i := range a.others {
		if o := &a.others[i]; now-o.at < w.stale() {
			sum += o.used[w]
		}
	}
	return sum
}

// idle reports whether nothing is counted in any window.
func (a *account) idle(now time.Duration) bool {
	return a.total(Minute, now) == 0 && a.total(Day, now) == 0
}

// add counts tokens in the windows of a limit.
func (l *Ledger) add(i uint32, limit *limit, tokens int64, at, now time.Duration) {
	a := &l.accounts[i]
	for w := range windows {
		if limit.most[w] > 0 {
			a.used[w].add(w, tokens, at, now)
		}
	}
	if !a.changed && len(l.changed) < mostChanged {
		a.changed = true
		l.changed = append(l.changed, i)
	}
}

// mostChanged bounds the list of accounts that are published first; the rest come in turn.
const mostChanged = 8 << 10

// until is the time until at most left is counted, here and elsewhere. For other agents
// only the sum is known, not the times.
func (a *account) until(w Window, left int64, now time.Duration) time.Duration {
	elsewhere := a.elsewhere(w, now)
	if elsewhere == 0 || a.used[w].sum >= elsewhere && left >= elsewhere {
		return a.used[w].until(w, left-elsewhere, now)
	}
	most := a.used[w].until(w, 0, now)
	for i := range a.others {
		o := &a.others[i]
		if o.used[w] > 0 {
			most = max(most, w.stale()-(now-o.at))
		}
	}
	return most
}

// open returns the slot of the account of that key, and creates it if there is room.
// Otherwise it returns the overflow account, which all without an account share.
func (l *Ledger) open(limit *limit, id ID, named bool, now time.Duration) uint32 {
	key := accountKey{limit.mark, id}
	if i, ok := l.byKey[key]; ok {
		return i
	}
	var i uint32
	switch {
	case named || l.others < l.most:
		if n := len(l.free); n > 0 {
			i, l.free = l.free[n-1], l.free[:n-1]
		} else {
			i = uint32(len(l.accounts))
			l.accounts = append(l.accounts, account{})
		}
		if !named {
			l.others++
		}
	default:
		var ok bool
		if i, ok = l.reclaim(now); !ok {
			l.overflowed++
			return limit.overflow
		}
	}
	a := &l.accounts[i]
	a.key, a.named, a.changed, a.gen = key, named, false, max(a.gen+1, 1)
	l.byKey[key] = i
	return i
}

// reclaimTries is how many accounts are looked at for one that is idle.
const reclaimTries = 8

// reclaim frees the slot of an account that has no name and counts nothing.
func (l *Ledger) reclaim(now time.Duration) (uint32, bool) {
	for range min(reclaimTries, len(l.accounts)) {
		l.hand = (l.hand + 1) % uint32(len(l.accounts))
		if a := &l.accounts[l.hand]; a.gen > 0 && !a.named && a.key != (accountKey{}) && a.idle(now) {
			delete(l.byKey, a.key)
			a.reset()
			return l.hand, true
		}
	}
	return 0, false
}

// reset empties a for another use.
func (a *account) reset() {
	for w := range a.used {
		a.used[w].empty()
	}
	a.key, a.named, a.others, a.changed, a.published, a.publishedAt = accountKey{}, false, a.others[:0], false, [windows]int64{}, 0
}

// close forgets an account.
func (l *Ledger) close(i uint32) {
	a := &l.accounts[i]
	delete(l.byKey, a.key)
	if !a.named {
		l.others--
	}
	a.reset()
	a.gen = max(a.gen+1, 1)
	l.free = append(l.free, i)
}
