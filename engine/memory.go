package engine

import (
	"encoding/binary"
	"time"

	"pointsman/decider"
	"pointsman/engine/kvevents"
)

// memory is what an earlier life of the agent knew from events about the caches of replicas
// that are not followed yet.
type memory struct {
	replicas map[remembered]*recollection
	until    time.Time // when it is given up
}

// recollection is what was known about one replica.
type recollection struct {
	image *kvevents.Image
	raw   []byte // the image as it was read
	known bool   // the pool knows the size of its blocks
}

// remembered names a replica of an earlier life.
type remembered struct{ pool, replica, address string }

// Bounds of a memory.
const (
	mostRemembered = 1 << 16 // replicas
	rememberFor    = time.Minute
)

// Snapshot returns what is known from events about the engines' caches, for the agent's
// next life.
func (w *Watch) Snapshot() []byte {
	type followed struct {
		remembered
		index *kvevents.Index
	}
	var list []followed
	var b []byte
	add := func(n remembered, image []byte) {
		for _, s := range []string{n.pool, n.replica, n.address} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		b = binary.AppendUvarint(b, uint64(len(image)))
		b = append(b, image...)
	}
	w.mu.Lock()
	for s, x := range w.indexes {
		list = append(list, followed{remembered{s.pool.Name(), s.replica, s.address}, x.Index})
	}
	for n, m := range w.memory.replicas {
		add(n, m.raw)
	}
	w.mu.Unlock()
	var image []byte
	for _, f := range list {
		image = f.index.AppendImage(image[:0])
		add(f.remembered, image)
	}
	return b
}

// Restore makes the replicas that are followed from now on start from the Snapshot of an
// earlier life. Parts that cannot be read are skipped. It is called before Run.
func (w *Watch) Restore(b []byte) {
	next := func() (part []byte, ok bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, false
		}
		part, b = b[size:size+int(n)], b[size+int(n):]
		return part, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory = memory{map[remembered]*recollection{}, time.Now().Add(rememberFor)}
	for len(b) > 0 && len(w.memory.replicas) < mostRemembered {
		pool, _ := next()
		replica, _ := next()
		address, _ := next()
		image, ok := next()
		if !ok {
			w.log.Warn("what was known of the engines' KV caches is not all readable")
			return
		}
		n := remembered{string(pool), string(replica), string(address)}
		m, err := kvevents.ReadImage(image)
		if err != nil {
			w.log.Warn("what was known of an engine's KV cache is not readable", "pool", n.pool, "replica", n.replica, "error", err)
			continue
		}
		w.memory.replicas[n] = &recollection{image: m, raw: image}
	}
}

// remember makes the pool compare blocks of the size that its replicas had, before any
// event reports it. The caller holds the lock.
func (w *Watch) remember(p *decider.Pool) {
	if w.memory.replicas == nil || p.Tokens() == nil {
		return
	}
	if time.Now().After(w.memory.until) {
		w.memory = memory{} // no replica has asked for the rest
		return
	}
	for _, r := range p.Members() {
		if m := w.memory.replicas[remembered{p.Name(), r.Name, r.Address}]; m != nil && !m.known {
			m.known = true
			p.Engine(r.Name).BlockTokens(m.image.BlockTokens)
		}
	}
}

// recall restores what was known about its replica into a new index. The caller holds the
// lock.
func (w *Watch) recall(s source, x *kvevents.Index) {
	n := remembered{s.pool.Name(), s.replica, s.address}
	if m := w.memory.replicas[n]; m != nil && x.Restore(m.image) {
		delete(w.memory.replicas, n)
		w.log.Debug("the engine's KV cache is known from the last run", "pool", n.pool, "replica", n.replica)
	}
}
