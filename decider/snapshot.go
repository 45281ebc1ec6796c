package decider

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"time"

	"pointsman/decider/kvcache"
)

// A snapshot is a pool's memory, for its next life after a restart and for agents that
// join: what the replicas' caches hold, which replica each session went to, speeds, and the
// open reservations. It is a list of parts, each a byte that names it, its length, and its
// contents. Times are ages, as clocks differ. Replicas go by name and address. Readers skip
// unknown parts, and refuse another version.
const snapshotMagic = "pointsman-pool\x02"

// The parts, in their order. Parts of the same kind may repeat.
const (
	partEnd      = iota // of the snapshot
	partHead            // what block keys mean
	partReplicas        // names, and what was learned of each
	partCache           // block keys of one replica
	partRates           // how often blocks are requested
	partSessions
	partReservations
	partLearned // of the pool as a whole
)

// State is how a pool's memory is written and read again. The methods are safe for
// concurrent use. They hold the pool's lock in short steps only.
type State struct{ pool *Pool }

// State returns the memory of the pool.
func (p *Pool) State() State { return State{p} }

// Steps of a snapshot: how much is copied at a time, with the pool locked.
const (
	rowsAtOnce         = 1 << 10 // of sessions
	reservationsAtOnce = 64
	blocksAtOnce       = 4 << 10 // of reservations
)

// leastRate is the block request rate below which a block's rate is not written.
const leastRate = 1

// Snapshot writes the pool's memory to w. It leaves out reservations of other agents.
// Nothing is locked while it writes.
func (s State) Snapshot(w io.Writer) error {
	x := snapshot{pool: s.pool, w: w, index: map[*Replica]int{}}
	if _, err := io.WriteString(w, snapshotMagic); err != nil {
		return err
	}
	x.head()
	x.caches()
	x.sessions()
	x.reservations()
	x.rates() // after what requests blocks
	x.learned()
	x.part(partEnd)
	return x.err
}

// snapshot is a snapshot that is being written.
type snapshot struct {
	pool     *Pool
	w        io.Writer
	e        encoder // of the current part
	err      error
	replicas []*Replica
	index    map[*Replica]int // in replicas
	keys     [][]uint64       // by replica: its blocks, in the order of its part
	learn    []byte           // partLearned
}

// part writes the contents of e as a part, and empties e.
func (x *snapshot) part(kind byte) {
	if x.err != nil {
		return
	}
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	n := binary.PutUvarint(head[1:], uint64(len(x.e.b)))
	if _, x.err = x.w.Write(head[:1+n]); x.err == nil {
		_, x.err = x.w.Write(x.e.b)
	}
	x.e.b = x.e.b[:0]
}

// head writes the small parts, copied in one step.
func (x *snapshot) head() {
	p := x.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	x.replicas = slices.Clone(p.replicas[:min(len(p.replicas), mostReplicas)])
	x.keys = make([][]uint64, len(x.replicas))
	x.learnedPool(now)
	x.learn = slices.Clone(x.e.b)
	x.e.b = x.e.b[:0]

	x.e.b = append(x.e.b, blockMeaning(p)...)
	x.part(partHead)
	x.e.count(len(x.replicas))
	for i, r := range x.replicas {
		x.index[r] = i
		x.e.name(r.name)
		x.e.name(r.address)
		x.e.number(r.prefill.speed.amount)
		x.e.number(r.prefill.speed.seconds)
		x.e.count(min(r.cacheSeen, mostSeen*mostContext))
		x.e.count(r.contextTokens)
		x.e.flags(r.ttft.some)
		x.e.count(min(int(r.ttft.mean/time.Microsecond), math.MaxInt32))
		x.e.age(now - r.ttft.at)
		x.e.count(min(r.concurrency.found, mostFound))
		x.e.age(now - r.concurrency.at)
		x.e.count(len(r.adapters.list))
		for _, a := range r.adapters.list {
			x.e.name(a.name)
			x.e.flags(a.loaded)
		}
	}
	x.part(partReplicas)
}

// blockMeaning is equal where block keys mean the same. It does not give away the
// keyspace.
func blockMeaning(p *Pool) []byte {
	h := sha256.New()
	h.Write([]byte("pointsman block keys 2\x00"))
	h.Write(p.keyspace)
	kind := byte(0)
	if p.tokens.Load() != nil {
		kind = 1
	}
	h.Write(binary.LittleEndian.AppendUint64([]byte{kind}, uint64(p.config.BlockTokens)))
	return h.Sum(nil)[:16]
}

// learnedPool encodes what was learned of all replicas together. The caller holds
// the lock.
func (x *snapshot) learnedPool(now time.Duration) {
	p, l := x.pool, &x.pool.load
	x.e.number(l.speed.amount)
	x.e.number(l.speed.seconds)
	x.e.number(l.typical)
	x.e.number(l.reported)
	x.e.age(now - l.reportedAt)
	x.e.number(l.demand.decayed(now))
	x.e.flags(l.demand.some)
	x.e.age(now - l.demand.since)
	x.e.number(p.bytesPerToken.bytes)
	x.e.number(p.bytesPerToken.tokens)
	x.e.count(int(p.admission.capacity.measured / time.Microsecond))
	x.e.number(p.admission.departure.amount)
	x.e.number(p.admission.departure.seconds)
}

func (x *snapshot) learned() {
	x.e.b = append(x.e.b, x.learn...)
	x.part(partLearned)
}

// caches writes the cache of each replica. With the pool locked it only copies the
// bookkeeping.
func (x *snapshot) caches() {
	var image kvcache.Image
	for i, r := range x.replicas {
		x.pool.mu.Lock()
		there := r.cache != nil
		if there {
			image.Copy(r.cache)
		}
		x.pool.mu.Unlock()
		if !there {
			continue
		}
		x.keys[i] = image.AppendKeys(nil)
		if len(x.keys[i]) == 0 {
			continue
		}
		x.e.count(i)
		x.e.count(len(x.keys[i]))
		for _, key := range x.keys[i] {
			x.e.fixed(key)
		}
		x.part(partCache)
	}
}

// rates writes how often blocks are requested, as bytes on a logarithmic scale.
func (x *snapshot) rates() {
	var copied kvcache.Rates
	for part := 0; ; part++ {
		x.pool.mu.Lock()
		now := kvcache.Milliseconds(x.pool.clock())
		m := x.pool.caches.model
		more := m != nil && part < m.RateParts()
		if more {
			copied.Copy(m, part)
		}
		x.pool.mu.Unlock()
		if !more {
			return
		}
		copied.Each(now, leastRate, func(key uint64, rate float32) {
			x.e.fixed(key)
			x.e.b = append(x.e.b, rateByte(rate))
		})
		if len(x.e.b) > 0 {
			x.part(partRates)
		}
	}
}

// sessions writes which replica each session went to last, in the order of their
// last requests.
func (x *snapshot) sessions() {
	type entry struct {
		key     uint64
		replica int
		age     uint32
	}
	var all []entry
	rows := make([]sessionRow, rowsAtOnce)
	for from := 0; ; {
		s := &x.pool.sessions
		x.pool.mu.Lock()
		n := copy(rows, s.rows[min(from, len(s.rows)):])
		tick := s.tick
		x.pool.mu.Unlock()
		for i := range rows[:n] {
			for _, e := range rows[i] {
				if at, ok := x.index[e.replica]; ok && e.replica != nil {
					all = append(all, entry{e.key, at, tick - e.seen})
				}
			}
		}
		if from += n; n == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return int(b.age) - int(a.age) })
	for len(all) > 0 {
		n := min(len(all), sessionsAtOnce)
		for _, e := range all[:n] {
			x.e.fixed(e.key)
			x.e.count(e.replica)
		}
		x.part(partSessions)
		all = all[n:]
	}
}

// sessionsAtOnce bounds the sessions in one part.
const sessionsAtOnce = 8 << 10
