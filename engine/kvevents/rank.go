package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
)

// blockRank is one KV cache of a replica, as its events tell. While batches are
// missing it keeps two accounts: what is there as far as the batches after the
// last gap prove it, and a book of what was there before the first gap. The
// batches since are kept until a replay has given those between them, and the
// book catches up.
type blockRank struct {
	of       *Index
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

// void begins from nothing.
func (r *blockRank) void() {
	r.close()
	r.empty(present)
	r.accounts[present] = account{exact: true}
}
