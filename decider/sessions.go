package decider

// sessions remembers which replica each session was given last. Its memory is
// fixed: a session has its place in one row of sessionsARow, and
// when that is full takes the place of the one longest not heard of.
type sessions struct {
	rows []sessionRow // none = remember nothing
	tick uint32
}

const (
	sessionRows  = 1 << 14 // of 8 sessions: 131,072 in 3 MiB a pool
	sessionsARow = 8
)

type sessionRow [sessionsARow]struct {
	key     uint64
	replica *Replica
	heard   uint32 // tick
}

func (s *sessions) enable(on bool) {
	switch {
	case !on:
		s.rows = nil
	case s.rows == nil:
		s.rows = make([]sessionRow, sessionRows)
	}
}

func (s *sessions) row(key uint64) *sessionRow { return &s.rows[scramble(key)%uint64(len(s.rows))] }

// put notes that r goes to replica.
func (s *sessions) put(r *Request, replica *Replica) {
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
		if row[at].replica != nil && (e.replica == nil || s.tick-e.heard > s.tick-row[at].heard) {
			at = k
		}
	}
	row[at].key, row[at].replica, row[at].heard = r.Session, replica, s.tick
}

// last returns the replica of the session of r, or nil.
func (s *sessions) last(r *Request) *Replica {
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
