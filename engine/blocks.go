package engine

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// blockRank is one KV cache of a replica, as its events tell. While batches are
// missing it keeps two accounts: what is there as far as the batches after the
// last gap prove it, and a book of what was there before the first gap. The
// batches since are kept until a replay has given those between them, and the
// book catches up.
type blockRank struct {
	of       *blockImage
	table    blockTable
	event    blockEvent
	accounts [2]account
	into     int // the account that a batch is being taken into

	behind bool // batches are missing that may still be had: there is a book
	kept   map[uint64][]byte
	bytes  int // of those kept
	// adrift tells that the connection has been broken and no batch has come
	// since. Those before broken may be of an engine that is gone; 0 = it is
	// known that they are not.
	adrift bool
	broken uint64
}

// account says how far an account of the blocks goes.
type account struct {
	next  uint64 // the number of the next batch
	sum   uint64 // a hash of the last one
	anew  bool   // there is no last one
	exact bool   // no batch is missing since the cache was empty
}

// maxKept bounds the batches kept by a rank, in bytes, of which each costs
// keptCost besides its own.
const (
	maxKept  = 8 << 20
	keptCost = 64
)

// mostBlocks bounds the blocks of a rank, far beyond what a cache has: some
// 300 MB. An engine that tells of more forgets to tell what is gone.
var mostBlocks = 8 << 20 // a variable for tests

var errBlocks = errors.New("more blocks than any cache has")

// errRestarted tells that the engine numbers its batches anew.
var errRestarted = errors.New("the engine has started anew")

// stored notes that the rank has a block that it was not known to have.
func (r *blockRank) stored(key uint64) {
	m := r.of
	if m.count != nil {
		if m.count[key]++; m.count[key] > 1 {
			return
		}
	}
	m.changes = append(m.changes, decider.BlockChange{Key: key, Stored: true})
}

// removed notes that the rank is not known to have a block any more.
func (r *blockRank) removed(key uint64) {
	m := r.of
	if m.count != nil {
		if m.count[key]--; m.count[key] > 0 {
			return
		}
		delete(m.count, key)
	}
	m.changes = append(m.changes, decider.BlockChange{Key: key})
}

// heard reports whether anything is known of the engine's batches.
func (r *blockRank) heard() bool { return r.behind || r.accounts[present].next > 0 }

// take takes in the next batch.
func (r *blockRank) take(number uint64, payload []byte) error {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	err := r.enter(present, number, payload)
	switch {
	case err != nil:
		r.close() // a replay tells no more
	case r.behind:
		r.keep(number, payload)
		r.advance()
	}
	m.tell()
	return err
}

// enter enters a batch in an account. The caller holds the lock, as it does of
// all that follow where nothing else is said.
func (r *blockRank) enter(account int, number uint64, payload []byte) error {
	r.into = account
	err := readBatch(payload, &r.event, r.on)
	switch {
	case r.table.used-r.table.idle > mostBlocks:
		r.close()
		r.doubt(present)
		r.table, err = blockTable{}, errBlocks
	case err != nil:
		r.doubt(account)
	}
	r.table.tidy(!r.accounts[present].exact)
	r.of.view.Batches++
	a := &r.accounts[account]
	a.next, a.sum, a.anew = number+1, xxhash.Sum64(payload), false
	return err
}

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

// void begins from nothing.
func (r *blockRank) void() {
	r.close()
	r.empty(present)
	r.accounts[present] = account{exact: true}
}

// on takes one event in.
func (r *blockRank) on(e *blockEvent) {
	m, t, a := r.of, &r.table, &r.accounts[r.into]
	if e.kind == eventCleared {
		r.empty(r.into)
		if r.into == present {
			r.close()
		}
		a.exact = true
		return
	}
	if !e.onGPU() || e.group != 0 {
		return
	}
	if e.kind == eventRemoved {
		for _, h := range e.hashes {
			if s := t.find(h); s != nil && s.count[r.into] > 0 && t.set(s, r.into, s.count[r.into]-1) {
				r.removed(s.key)
			}
		}
		return
	}
	n := uint64(len(e.hashes))
	if e.size != m.blockTokens || e.numbered && e.lora == nil || len(e.tokens) < len(e.hashes)*e.size {
		m.view.Strange += n
		return
	}
	if e.hasParent && !a.exact && !e.window {
		r.prove(e.parent)
	}
	for i, h := range e.hashes {
		s := t.at(h)
		if s.state&slotNamed == 0 {
			r.name(s, e, i)
		}
		if c := s.count[r.into]; c < math.MaxUint16 && t.set(s, r.into, c+1) {
			r.stored(s.key)
		}
	}
}

// name notes what is in block i of an event.
func (r *blockRank) name(s *tableSlot, e *blockEvent, i int) {
	var single, rest []byte
	if i < len(e.extra) {
		single, rest = otherKeys(e.extra[i], e.lora)
	}
	first := i == 0 && !e.hasParent
	if first && single != nil {
		rest = nil // the salt, which the seed has
	}
	content := kvcache.Content(e.tokens[i*e.size : (i+1)*e.size])
	if rest != nil {
		content = kvcache.Mix(content, rest)
	}
	switch {
	case first:
		s.key = kvcache.Key(r.of.pool.PromptSeed(e.lora, single), content)
		s.state |= slotNamed | slotFirst | slotPlaced
	case i == 0:
		r.table.name(s, e.parent, content)
	default:
		r.table.name(s, e.hashes[i-1], content)
	}
	if s.state&slotPlaced != 0 {
		if s.count[present] > 0 {
			r.stored(s.key)
		}
		r.table.adopt(s, r.stored)
	}
}

// prove notes that a block is there, and all before it: one was stored after
// it, and an engine holds all of a prompt while it computes the rest.
func (r *blockRank) prove(h uint64) {
	for {
		s := r.table.at(h)
		if s.count[r.into] > 0 {
			return
		}
		if r.table.set(s, r.into, 1) {
			r.stored(s.key)
		}
		if s.state&(slotNamed|slotFirst) != slotNamed {
			return
		}
		h = s.parent
	}
}
