package decider

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"pointsman/decider/kvcache"
)

// Bounds of a snapshot's values. A snapshot that exceeds them is bad.
const (
	mostPart     = 32 << 20 // bytes of one part
	mostSnapshot = 96 << 20 // of all
	mostReplicas = 4096
	mostReserved = 1 << 17 // reservations
	mostBlocks   = 4 << 20 // of all reservations, 32 MiB
	mostFound    = 1 << 20 // of a concurrency limit
	longestName  = 256
	mostLearned  = 1e15
)

// Steps of Restore: how much is restored at a time, with the pool locked.
const (
	keysAtOnce           = 512
	restoredAtOnce       = 64
	restoredBlocksAtOnce = 2 << 10
)

// restoredLease is how long a reservation of this agent's earlier life counts without a
// report in this one: the proxies and engines report sooner how many requests there really
// are.
const restoredLease = time.Minute

// ErrSnapshot is the error of a snapshot that cannot be read: damaged, or of
// another version.
var ErrSnapshot = errors.New("not a snapshot of this version, or a damaged one")

// CacheRestorer is implemented by policies and scorers that keep their own record of the
// prompts sent to each replica. RestoreCache passes them the blocks that the pool has
// restored, in the order of kvcache.Cache.Restore. It is called with the pool locked, most
// recently used blocks first.
type CacheRestorer interface {
	RestoreCache(replica int, blocks []uint64)
}

// Restored counts what Restore has restored.
type Restored struct{ Replicas, Blocks, Sessions, Reservations int }

// Restore adds the contents of a Snapshot to the pool's memory. from names the agent that
// wrote it and made its reservations; "" is this agent in its earlier life. old is the age
// of the snapshot. What the pool knows already takes precedence. Entries of replicas that
// the pool does not have are skipped. An error means that the rest of the snapshot is lost;
// what came before it stays.
func (s State) Restore(r io.Reader, from string, old time.Duration) (Restored, error) {
	x := restore{pool: s.pool, from: from, old: max(old, 0), budget: mostBlocks}
	r = io.LimitReader(r, mostSnapshot)
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != snapshotMagic {
		return x.got, ErrSnapshot
	}
	for {
		kind, part, err := readPart(r)
		if err != nil || x.replicas == nil && kind > partReplicas {
			return x.got, ErrSnapshot
		}
		x.d = decoder{b: part}
		switch kind {
		case partEnd:
			return x.got, nil
		case partHead:
			x.comparable = bytes.Equal(part, blockMeaning(s.pool))
		case partReplicas:
			x.names()
		case partCache:
			x.cache()
		case partRates:
			x.rates()
		case partSessions:
			x.sessions()
		case partReservations:
			x.reservations()
		case partLearned:
			x.learned()
		}
		if x.d.bad {
			return x.got, ErrSnapshot
		}
	}
}

// readPart reads one part, into memory that grows as it arrives.
func readPart(r io.Reader) (kind byte, part []byte, err error) {
	var one [1]byte
	next := func() (byte, error) { _, err := io.ReadFull(r, one[:]); return one[0], err }
	if kind, err = next(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(byteReader(next))
	if err != nil || n > mostPart {
		return 0, nil, ErrSnapshot
	}
	var b bytes.Buffer
	if got, err := b.ReadFrom(io.LimitReader(r, int64(n))); err != nil || got != int64(n) {
		return 0, nil, ErrSnapshot
	}
	return kind, b.Bytes(), nil
}

type byteReader func() (byte, error)

func (f byteReader) ReadByte() (byte, error) { return f() }

// restore is a snapshot that is being read.
type restore struct {
	pool       *Pool
	from       string
	old        time.Duration
	d          decoder
	comparable bool       // its block keys are the pool's
	replicas   []*Replica // by place in the snapshot; nil = the pool has no such replica
	keys       [][]uint64 // by place: the blocks of its part
	budget     int        // blocks that reservations may still have
	reserved   int        // reservations read
	got        Restored
}

// found returns the pool's replica of that name and address, or nil. Another
// address is another engine, unless one of the two is not known. The caller holds
// the lock.
func (m *members) found(name, address string) *Replica {
	if r := m.byName[name]; r != nil && (r.address == address || r.address == "" || address == "") {
		return r
	}
	for _, r := range m.replicas {
		if address != "" && r.address == address {
			return r
		}
	}
	return nil
}

// names reads the replicas and what was learned of each.
func (x *restore) names() {
	p, d := x.pool, &x.d
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	n := d.count(mostReplicas)
	x.replicas = []*Replica{}
	for i := 0; i < n && !d.bad; i++ {
		r := p.found(d.text(longestName), d.text(longestName))
		speed := rateEstimator{amount: d.number(mostLearned), seconds: d.number(mostLearned)}
		seen, context := d.count(mostContext*mostSeen), d.count(mostContext)
		ttft := latency{some: d.flags(1)[0], mean: time.Duration(d.count(math.MaxInt32)) * time.Microsecond, at: now - d.age() - x.old}
		limit := concurrency{found: d.count(mostFound), at: now - d.age() - x.old}
		var list []adapter
		for range d.count(maxListed) {
			if name := d.text(longestName); !d.bad {
				list = append(list, adapter{name: name, loaded: d.flags(1)[0]})
			}
		}
		if r != nil && (d.bad || slices.Contains(x.replicas, r)) {
			r = nil
		}
		x.replicas = append(x.replicas, r)
		if r == nil {
			continue
		}
		x.got.Replicas++
		if r.prefill.speed.seconds < speed.seconds {
			r.prefill.speed = speed
		}
		if r.contextTokens == 0 {
			r.contextTokens = context
		}
		if !r.ttft.some {
			r.ttft = ttft
		}
		if r.concurrency.found == 0 {
			r.concurrency = limit
		}
		if r.cache != nil && r.cacheSeen < seen {
			r.cacheSeen = min(seen, mostSeen*r.cacheTokens)
			p.caches.resize(r)
		}
		if len(r.adapters.list) == 0 {
			r.adapters.list = list
			r.adapters.shrink()
		}
	}
	x.keys = make([][]uint64, len(x.replicas))
	p.updateBounds(&p.config, p.replicas)
}

// replica reads the place of a replica.
func (x *restore) replica() (at int, r *Replica) {
	at = x.d.count(len(x.replicas))
	if at >= len(x.replicas) {
		x.d.fail()
		return 0, nil
	}
	return at, x.replicas[at]
}

// cache reads what a replica's cache held.
func (x *restore) cache() {
	at, r := x.replica()
	n := x.d.count(len(x.d.b) / 8)
	if x.d.bad || x.keys[at] != nil {
		x.d.fail()
		return
	}
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = x.d.fixed()
	}
	x.keys[at] = keys
	if r == nil || !x.comparable {
		return
	}
	x.pool.mu.Lock()
	if r.cache != nil && r.index >= 0 {
		r.cache.Expect(len(keys))
	}
	x.pool.mu.Unlock()
	// Cache.Restore adds below what is there: the blocks used last come first.
	for end := len(keys); end > 0; end = max(0, end-keysAtOnce) {
		part := keys[max(0, end-keysAtOnce):end]
		x.pool.mu.Lock()
		if r.cache != nil && r.index >= 0 {
			before := r.cache.Len()
			r.cache.Restore(part, kvcache.Milliseconds(x.pool.clock()))
			x.got.Blocks += r.cache.Len() - before
			x.pool.restoreCache(r, part)
			x.pool.turnover.restored(r, r.cache.Len()*x.pool.caches.blockTokens)
		}
		x.pool.mu.Unlock()
	}
}

// rates reads how often blocks were requested.
func (x *restore) rates() {
	for len(x.d.b) > 0 && !x.d.bad {
		x.pool.mu.Lock()
		now := kvcache.Milliseconds(x.pool.clock())
		for i := 0; i < keysAtOnce && len(x.d.b) > 0; i++ {
			key, b := x.d.fixed(), x.d.bytes(1)
			if m := x.pool.caches.model; len(b) == 1 && m != nil && x.comparable {
				m.RaiseRate(key, rateOf(b[0]), now)
			}
		}
		x.pool.mu.Unlock()
	}
}

// sessions reads which replica each session went to last.
func (x *restore) sessions() {
	for len(x.d.b) > 0 && !x.d.bad {
		x.pool.mu.Lock()
		s := &x.pool.sessions
		for i := 0; i < keysAtOnce && len(x.d.b) > 0; i++ {
			r := Request{Session: x.d.fixed(), HasSession: true}
			_, replica := x.replica()
			if !x.d.bad && replica != nil && replica.index >= 0 && s.rows != nil && s.last(&r) == nil {
				s.add(&r, replica)
				x.got.Sessions++
			}
		}
		x.pool.mu.Unlock()
	}
}

// learned reads what was learned of all replicas together.
func (x *restore) learned() {
	p, d := x.pool, &x.d
	p.mu.Lock()
	defer p.mu.Unlock()
	now, l := p.clock(), &p.load
	speed := rateEstimator{amount: d.number(mostLearned), seconds: d.number(mostLearned)}
	typical, reported, reportedAt := d.number(mostLearned), d.number(1), now-d.age()-x.old
	asked := demand{sum: d.number(mostLearned), at: now - x.old, some: d.flags(1)[0], since: now - d.age() - x.old}
	asked.requests = asked.sum / max(typical, 1) // their number is not in the snapshot
	text, tokens := d.number(mostLearned), d.number(mostLearned)
	delay := time.Duration(d.count(int(5*time.Second/time.Microsecond))) * time.Microsecond
	departure := rateEstimator{amount: d.number(mostLearned), seconds: d.number(mostLearned)}
	if d.bad {
		return
	}
	if l.speed.seconds < speed.seconds {
		l.speed, l.typical = speed, typical
	}
	if l.reportedAt == 0 && reported > 0 {
		l.reported, l.reportedAt = reported, reportedAt
	}
	if x.from == "" && asked.decayed(now) > l.demand.decayed(now) {
		l.demand = asked
	}
	if p.bytesPerToken.tokens == 0 && tokens > 0 {
		p.bytesPerToken.set(text, tokens)
		p.setBlockTokens()
	}
	if c := &p.admission.capacity; c.measured == 0 {
		c.measured = delay
	}
	if p.admission.on() && p.admission.departure.seconds == 0 {
		p.admission.departure = departure
	}
}

// restoreCache reports to the policy which blocks r held.
func (s *selection) restoreCache(r *Replica, blocks []uint64) {
	if c, ok := s.policy.(CacheRestorer); ok {
		c.RestoreCache(r.index, blocks)
	}
}
