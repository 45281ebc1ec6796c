package decider

// tombstones remembers the last requests that ended without a reservation. A client that
// leaves while its request is being decided is logged first and decided later, and that
// decision must not book a load that never ends. The same holds for questions that waited
// in the sockets of a stopped agent: as many as the proxy asks in the seconds until it
// stops asking. It lives under the pool's lock.
type tombstones struct {
	ring [4096]ID
	next int
	set  map[ID]struct{}
}

func newTombstones() tombstones { return tombstones{set: map[ID]struct{}{}} }

func (t *tombstones) add(id ID) {
	delete(t.set, t.ring[t.next])
	t.ring[t.next] = id
	t.set[id] = struct{}{}
	t.next = (t.next + 1) % len(t.ring)
}

// pop removes id and reports whether it was there.
func (t *tombstones) pop(id ID) bool {
	if len(t.set) == 0 {
		return false
	}
	_, ok := t.set[id]
	delete(t.set, id)
	return ok
}
