package policy

import (
	"errors"
	"math"

	"pointsman/decider"
	"pointsman/session"
)

// Session keeps the requests of a session on one replica, its home, by rendezvous
// hashing; its fallbacks are as stable as the home. A request without a session is
// placed by its id, which is random. Choose it if clients send a session id and
// conversations are long.
type Session struct {
	SessionOptions
	table *session.Table

	rank        int       // of the last Rank's first choice: 0 = home
	home        uint64    // sessions placed at home
	fallbacks   [2]uint64 // at their first and second fallback
	other       uint64    // elsewhere
	sessionless uint64    // requests without a session
	tables      uint64    // rebuilds, one for each change of membership or weight
}

// SessionOptions are the options of Session.
type SessionOptions struct {
	// Fallbacks is the number of fallbacks, 0 to 2.
	Fallbacks int `yaml:"fallbacks" help:"fallbacks of the session, 0 to 2, that HAProxy may use"`
	// LoadBound sends a session to its next replica while its home has more
	// than this many times the mean of requests in flight (Mirrokni, Thorup and
	// Zadimoghaddam, "Consistent hashing with bounded loads", 2016). It is above
	// 1; 0 = no bound.
	LoadBound float64 `yaml:"load_bound" help:"factor above 1: how many times the mean load a home may have"`
}

// SessionDefaults are the defaults of SessionOptions.
var SessionDefaults = SessionOptions{Fallbacks: 2}

// Validate returns an error that names the option at fault.
func (o SessionOptions) Validate() error {
	switch {
	case o.Fallbacks < 0 || o.Fallbacks > 2:
		return errors.New("fallbacks: want 0, 1 or 2")
	case o.LoadBound != 0 && !(o.LoadBound > 1):
		return errors.New("load_bound: want 0 for none, or a factor above 1")
	}
	return nil
}

// NewSession returns a Session, or the error of o.Validate.
func NewSession(o SessionOptions) (*Session, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Session{SessionOptions: o, table: session.NewTable(nil)}, nil
}

// Members implements MemberObserver.
func (p *Session) Members(replicas []*decider.Replica) {
	p.table = sessionTable(replicas)
	p.tables++
}

// sessionTable maps sessions to replicas in proportion to their weights.
func sessionTable(replicas []*decider.Replica) *session.Table {
	m := make([]session.Member, len(replicas))
	for i, r := range replicas {
		m[i] = session.Member{Name: r.Name(), Weight: max(r.Weight(), 1)}
	}
	return session.NewTable(m)
}

// Rank implements Policy.
func (p *Session) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	key := r.Session
	if !r.HasSession {
		key = r.ID.Hash()
	}
	start := len(dst)
	n := 1 + p.Fallbacks
	if p.LoadBound > 0 {
		n = session.MaxRanks
	}
	dst, before := p.table.Rank(key, v.Candidates, n, dst)
	passed := p.bound(v, dst[start:])
	p.rank = before + passed
	return dst[:start+min(len(dst)-start, 1+p.Fallbacks)]
}

// bound moves the first replica below the load bound to the front, and returns
// how many it passed over.
func (p *Session) bound(v *decider.View, ranked []int) int {
	if p.LoadBound == 0 {
		return 0
	}
	total, weights := 1, 0
	for _, i := range v.Candidates {
		total += v.Replicas[i].InFlight()
		weights += v.Replicas[i].Weight()
	}
	for k, i := range ranked {
		r := v.Replicas[i]
		share := float64(total) * float64(r.Weight()) / float64(weights)
		if float64(r.InFlight()+1) <= math.Ceil(p.LoadBound*share) {
			copy(ranked[1:k+1], ranked[:k])
			ranked[0] = i
			return k
		}
	}
	return 0
}

// Reserved implements Observer: it counts where sessions went.
func (p *Session) Reserved(r *decider.Request, _ int) {
	switch {
	case !r.HasSession:
		p.sessionless++
	case p.rank == 0:
		p.home++
	case p.rank <= len(p.fallbacks):
		p.fallbacks[p.rank-1]++
	default:
		p.other++
	}
}

// FirstToken implements Observer.
func (*Session) FirstToken(*decider.Request, int) {}

// Finished implements Observer.
func (*Session) Finished(*decider.Request, int, decider.Outcome) {}

// Counters implements Counted.
func (p *Session) Counters(dst []decider.Counter) []decider.Counter {
	return append(dst,
		decider.Counter{Name: `session_decisions_total{rank="home"}`, Value: p.home},
		decider.Counter{Name: `session_decisions_total{rank="fallback1"}`, Value: p.fallbacks[0]},
		decider.Counter{Name: `session_decisions_total{rank="fallback2"}`, Value: p.fallbacks[1]},
		decider.Counter{Name: `session_decisions_total{rank="other"}`, Value: p.other},
		decider.Counter{Name: `session_decisions_total{rank="no_session"}`, Value: p.sessionless},
		decider.Counter{Name: `session_table_rebuilds_total`, Value: p.tables})
}

var (
	_ decider.Policy         = (*Session)(nil)
	_ decider.Observer       = (*Session)(nil)
	_ decider.MemberObserver = (*Session)(nil)
	_ decider.Counted        = (*Session)(nil)
)
