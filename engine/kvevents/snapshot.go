package kvevents

import (
	"bytes"
	"math"
	"slices"
)

// keep keeps a batch until the book has caught up with it.
func (r *blockRank) keep(number uint64, payload []byte) {
	if r.kept == nil {
		r.kept = map[uint64][]byte{}
	}
	r.kept[number] = slices.Clone(payload)
	if r.bytes += len(payload) + keptCost; r.bytes <= maxKept {
		return
	}
	if r.adrift {
		r.renew()
	} else {
		r.close()
	}
}

// drop drops the batches kept before a number.
func (r *blockRank) drop(before uint64) {
	for n, payload := range r.kept {
		if n < before {
			r.bytes -= len(payload) + keptCost
			delete(r.kept, n)
		}
	}
}

// advance enters in the book what is kept, as far as nothing is missing and all
// of it is of one engine.
func (r *blockRank) advance() {
	b := &r.accounts[book]
	for r.behind && r.broken == 0 {
		payload, ok := r.kept[b.next]
		if !ok {
			break
		}
		r.bytes -= len(payload) + keptCost
		delete(r.kept, b.next)
		_ = r.enter(book, b.next, payload)
	}
	if r.behind && !r.adrift && b.next == r.accounts[present].next && r.broken == 0 {
		r.settle()
	}
}

// replayed takes in a batch of a replay, while there is a book; first is the
// number of the first batch that the replay has told.
func (r *blockRank) replayed(number uint64, payload []byte, first uint64) error {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	had := r.kept[number]
	if had != nil {
		if !bytes.Equal(had, payload) {
			return errRestarted
		}
		r.confirm(number)
	}
	if number == first {
		r.skip(number)
	}
	if r.broken > 0 && number >= r.broken {
		// Nothing from before the connection was broken has come again.
		if first > 0 {
			r.forsake(first)
		}
		r.broken = 0
	}
	var err error
	switch {
	case !r.behind: // nothing before is of use
		err = r.enter(present, number, payload)
	case had == nil:
		r.keep(number, payload)
	}
	r.advance()
	m.tell()
	return err
}

// confirm notes that the batch of that number is of the engine that runs.
func (r *blockRank) confirm(number uint64) {
	if number < r.broken {
		r.broken = 0
	}
}

// skip notes that the engine has no batch before number any more.
func (r *blockRank) skip(number uint64) {
	from := number // after the last one that is missing for good
	for ; from > r.accounts[book].next && r.kept[from-1] != nil; from-- {
		if from == r.broken {
			break
		}
	}
	switch {
	case from == r.accounts[book].next && from != r.broken:
	case !r.adrift && from > r.accounts[present].next:
		r.close()
		r.doubt(present)
		r.accounts[present].next = from
	default:
		r.forsake(from)
	}
}

// forsake begins the book anew with the batch of that number: one before it is
// missing for good.
func (r *blockRank) forsake(number uint64) {
	r.doubt(book)
	r.accounts[book].next, r.accounts[book].anew = number, true
	r.drop(number)
	if r.broken <= number {
		r.broken = 0
	}
}

// lose notes that the batches before number are not to be had now: nothing is
// sure that they may have undone. later tells that they may be had later.
func (r *blockRank) lose(number uint64, later bool) {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if later {
		r.open()
	}
	r.doubt(present)
	r.accounts[present].next = number
	m.tell()
}

// drift notes that the connection has been broken, and nothing tells yet what
// was missed or whether the engine has started anew.
func (r *blockRank) drift() {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.adrift {
		return
	}
	if r.behind && r.broken > 0 {
		r.renew() // too much to keep apart
	}
	r.open()
	r.doubt(present)
	r.adrift, r.broken = true, r.accounts[present].next
	m.tell()
}

// land ends drift: number is that of the next batch.
func (r *blockRank) land(number uint64) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if number < r.broken {
		r.renew()
	}
	r.adrift = false
	r.accounts[present].next = number
	r.advance() // number may be the first
}

// open opens a book, unless there is one.
func (r *blockRank) open() {
	if r.behind {
		return
	}
	r.behind = true
	r.accounts[book] = r.accounts[present]
	r.table.each(func(s *tableSlot) { r.table.set(s, book, s.count[present]) })
}

// settle closes the book, which tells more of what there is.
func (r *blockRank) settle() {
	r.accounts[present] = r.accounts[book]
	r.table.each(func(s *tableSlot) {
		if r.table.set(s, present, s.count[book]) {
			if s.count[present] > 0 {
				r.stored(s.key)
			} else {
				r.removed(s.key)
			}
		}
	})
	r.close()
}

// close closes the book, which is of no use any more.
func (r *blockRank) close() {
	if r.behind {
		r.empty(book)
	}
	r.behind, r.adrift, r.broken = false, false, 0
	r.kept, r.bytes = nil, 0
}

// doubt empties an account of which nothing is sure any more. What is not in
// the other one either is remembered by its name alone.
func (r *blockRank) doubt(account int) {
	if account == present {
		r.of.view.Rebuilt++
	}
	r.empty(account)
	r.accounts[account].exact = false
}

// empty takes all out of an account.
func (r *blockRank) empty(account int) {
	r.table.each(func(s *tableSlot) {
		if r.table.set(s, account, 0) {
			r.removed(s.key)
		}
	})
}

// restarted notes that the engine has started anew since the last batch before
// which none is missing.
func (r *blockRank) restarted() {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.behind {
		r.renew()
		return
	}
	m.view.Rebuilt++
	r.void()
	m.tell()
}

// renew begins the book with the first batch of an engine whose cache is empty.
func (r *blockRank) renew() {
	r.empty(book)
	r.accounts[book] = account{exact: true}
	if r.adrift || r.broken == 0 {
		r.broken = math.MaxUint64
	}
	r.drop(r.broken)
	r.broken = 0
}

// caughtUp notes that a replay has told all there is.
func (r *blockRank) caughtUp() {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.adrift && r.broken == 0 {
		r.settle()
		m.tell()
	}
}

// last is the account that goes on where nothing is missing.
func (r *blockRank) last() *account {
	if r.behind {
		return &r.accounts[book]
	}
	return &r.accounts[present]
}
