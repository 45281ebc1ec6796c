package decider

// sessionMemory remembers which replica each session was sent to last. Its memory is fixed:
// each session belongs to one row; if that is full, it replaces the least recently seen
// session there. It lives under the pool's lock.
type sessionMemory struct {
	rows []sessionRow // none = nothing is remembered
	tick uint32       // requests remembered so far
}

const (
	sessionRows    = 1 << 14 // of 8 sessions: 131,072 in 3 MiB per pool
	sessionsPerRow = 8
)

type sessionRow [sessionsPerRow]struct {
	key     uint64
	replica *Replica
	seen    uint32 // the tick of its last request
}

// enable starts remembering sessions, or forgets all.
func (s *sessionMemory) enable(on bool) {
	switch {
	case !on:
		s.rows = nil
	case s.rows == nil:
		s.rows = make([]sessionRow, sessionRows)
	}
}

func (s *sessionMemory) row(key uint64) *sessionRow {
	return &s.rows[scramble(key)%uint64(len(s.rows))]
}

// add notes that r goes to replica.
func (s *sessionMemory) add(r *Request, replica *Replica) {
	if s.rows == nil || !r.HasSession {
		return
	}
	s.tick++
	row := s.row(r.Session)
	at := 0
	for k := range row {
		e := &row[k]
		if e.replica != nil && e.key == r.Session {
			at = k
			break
		}
		if row[at].replica != nil && (e.replica == nil || s.tick-e.seen > s.tick-row[at].seen) {
			at = k
		}
	}
	row[at].key, row[at].replica, row[at].seen = r.Session, replica, s.tick
}

// last returns the replica of the session of r, nil if that is unknown.
func (s *sessionMemory) last(r *Request) *Replica {
	if s.rows == nil || !r.HasSession {
		return nil
	}
	for _, e := range s.row(r.Session) {
		if e.replica != nil && e.key == r.Session {
			return e.replica
		}
	}
	return nil
}
