package decider

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"pointsman/session"
)

// Admission says in which order a pool's requests go to its replicas when not
// all of them can go at once, and which are refused. A pool without one sends
// each request at once.
type Admission struct {
	// Hold keeps requests in the pool until a replica has room, and binds them
	// to one only then. Otherwise they wait in the proxy's queues, by
	// Decision.Class and Decision.Offset.
	Hold bool
	// FIFO lets a replica that has room take whichever request is first in
	// line. Otherwise a request waits for the replica that the policy would
	// choose for it, unless an idle one gains much by taking it.
	FIFO bool
	// Await keeps requests, with Hold, also while the pool has no replica that
	// is open: one may come. Otherwise such requests are decided at once.
	Await bool
	// Bands are the classes of requests, the most urgent first; at least one.
	// The last takes what fits no other.
	Bands []Band

	BandHeader     session.Headers // names a band, before all other rules
	DeadlineHeader session.Headers // of the first token; see parseDeadline
	Tenants        []TenantSource  // what tells tenants apart, the first that is there; none = all are one
	TenantWeights  map[string]int  // shares of tenants that do not have 1; they are counted by name

	// FeedbackDelay is how late the pool hears of first tokens, until
	// Pool.Delayed has told better.
	FeedbackDelay time.Duration
	// Epoch is when the pool's clock was 0. Without it deadlines by the
	// calendar are not understood.
	Epoch time.Time
}

// Band is a class of requests.
type Band struct {
	Name string
	// Weight is the band's share of the work among those that have one. Bands
	// without come first, strictly in their order.
	Weight int
	Order  Order

	TTL         time.Duration // the longest that a request waits; 0 = DefaultTTL
	Deadline    time.Duration // of the first token, for requests that tell none; 0 = none
	MaxRequests int           // that may wait; 0 = DefaultMaxWaiting
	MaxBytes    int           // of their bodies; 0 = no limit
	Spill       string        // pool that takes what the limits refuse; "" = 429

	// A request belongs to the band when each of these that is set fits.
	Models     []string
	Paths      []string // prefixes
	Tenants    []string
	Priority   int // the body's priority is at most this
	ByPriority bool
}

// Defaults of a Band.
const (
	DefaultTTL        = 30 * time.Second
	DefaultMaxWaiting = 1000
)

// Order is the order of a tenant's requests within a band.
type Order uint8

// The orders.
const (
	Arrival       Order = iota // first come, first served
	ByDeadline                 // earliest deadline first, those without one last
	LeastWorkLeft              // shortest predicted work first, less what it has waited
	orders
)

var orderNames = [orders]string{"arrival", "deadline", "work"}

// OrderNames are the names of the orders, by their values.
func OrderNames() []string { return orderNames[:] }

// TenantSource is one way to tell tenants apart: the body's user, an API key,
// the session, or a header.
type TenantSource struct {
	kind    tenantKind
	headers session.Headers
}

type tenantKind uint8

const (
	tenantHeader tenantKind = iota
	tenantUser
	tenantKey
	tenantSession
)

// NewTenantSource takes "user", "api_key", "session" or the name of a header.
func NewTenantSource(name string) TenantSource {
	switch name {
	case "user":
		return TenantSource{kind: tenantUser}
	case "api_key":
		return TenantSource{kind: tenantKey, headers: session.NewHeaders([]string{"authorization", "x-api-key"})}
	case "session":
		return TenantSource{kind: tenantSession}
	}
	return TenantSource{headers: session.NewHeaders([]string{name})}
}

// admission is an Admission made ready. It is immutable.
type admission struct {
	Admission
	tenants []map[uint64]bool // by band: Band.Tenants, hashed
	classes map[uint64]int    // of tenants: a place in names
	names   []string          // of the classes; the first is of all that have no weight
	weights []float64
}

// otherTenants is the class of tenants without a weight of their own.
const otherTenants = "other"

func newAdmission(c Admission) *admission {
	a := &admission{Admission: c, classes: map[uint64]int{}, names: []string{otherTenants}, weights: []float64{1}}
	a.Bands = append([]Band{}, c.Bands...)
	for i := range a.Bands {
		b := &a.Bands[i]
		if b.TTL == 0 {
			b.TTL = DefaultTTL
		}
		if b.MaxRequests == 0 {
			b.MaxRequests = DefaultMaxWaiting
		}
		set := map[uint64]bool{}
		for _, t := range b.Tenants {
			set[session.Key([]byte(t))] = true
		}
		a.tenants = append(a.tenants, set)
	}
	for _, name := range sortedKeys(c.TenantWeights) {
		a.classes[session.Key([]byte(name))] = len(a.names)
		a.names = append(a.names, name)
		a.weights = append(a.weights, float64(max(c.TenantWeights[name], 1)))
	}
	return a
}

// LongestWait is the longest that a request is held. It is 0 without Hold.
func (a *Admission) LongestWait() (most time.Duration) {
	if !a.Hold {
		return 0
	}
	for _, b := range a.Bands {
		ttl := b.TTL
		if ttl == 0 {
			ttl = DefaultTTL
		}
		most = max(most, ttl)
	}
	return most
}

// classify finds the band, the tenant and the deadline of r.
func (a *admission) classify(r *Request, in *Input, now time.Duration) {
	r.Bytes = max(in.BodySize, len(in.Body))
	r.Tenant = a.tenant(r, in.Headers)
	r.Band = a.band(r, in)
	r.Deadline = 0
	if v, ok := a.DeadlineHeader.Find(in.Headers); ok {
		r.Deadline = parseDeadline(v, now, a.Epoch)
	}
	if b := &a.Bands[r.Band]; r.Deadline == 0 && b.Deadline > 0 {
		r.Deadline = now + b.Deadline
	}
}

// tenant is the hash of who sends r, 0 when nothing tells.
func (a *admission) tenant(r *Request, headers []byte) uint64 {
	for _, s := range a.Tenants {
		var id []byte
		switch s.kind {
		case tenantUser:
			id = r.body.User
		case tenantSession:
			if r.HasSession {
				return r.Session
			}
		default:
			id, _ = s.headers.Find(headers)
			if len(id) > 7 && s.kind == tenantKey && bytes.EqualFold(id[:7], bearer) {
				id = bytes.TrimLeft(id[7:], " ")
			}
		}
		if len(id) > 0 {
			return session.Key(id)
		}
	}
	return 0
}

var bearer = []byte("Bearer ")

// band is the place of r's band.
func (a *admission) band(r *Request, in *Input) int {
	if name, ok := a.BandHeader.Find(in.Headers); ok {
		for i := range a.Bands {
			if a.Bands[i].Name == string(name) {
				return i
			}
		}
	}
	for i := range a.Bands {
		if a.fits(i, r, in) {
			return i
		}
	}
	return len(a.Bands) - 1
}

func (a *admission) fits(i int, r *Request, in *Input) bool {
	b := &a.Bands[i]
	if b.ByPriority && r.Priority > b.Priority || len(a.tenants[i]) > 0 && !a.tenants[i][r.Tenant] {
		return false
	}
	if len(b.Models) > 0 {
		found := false
		for _, m := range b.Models {
			found = found || m == r.Model
		}
		if !found {
			return false
		}
	}
	if len(b.Paths) == 0 {
		return true
	}
	for _, prefix := range b.Paths {
		if len(in.Path) >= len(prefix) && string(in.Path[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// bandNamed is the place of the band of that name, or of the last one.
func (a *admission) bandNamed(name string) int {
	for i := range a.Bands {
		if a.Bands[i].Name == name {
			return i
		}
	}
	return len(a.Bands) - 1
}

// class is the place of a tenant's class in names.
func (a *admission) class(tenant uint64) int { return a.classes[tenant] }

// parseDeadline reads the value of a deadline header: a time from now in
// seconds (2.5) or with a unit (800ms, 2m), or a time of the calendar in
// seconds or milliseconds since 1970 or in the form of RFC 3339. What has
// passed gives the earliest deadline, what is not understood none (0).
func parseDeadline(v []byte, now time.Duration, epoch time.Time) time.Duration {
	if len(v) == 0 || len(v) > 40 {
		return 0
	}
	absolute := func(t time.Time) time.Duration {
		if epoch.IsZero() {
			return 0
		}
		return max(t.Sub(epoch), 1)
	}
	if x, err := strconv.ParseFloat(string(v), 64); err == nil {
		switch {
		case x != x || x > 1e14:
			return 0
		case x >= 1e11:
			return absolute(time.UnixMilli(int64(x)))
		case x >= 1e8:
			return absolute(time.UnixMilli(int64(x * 1000)))
		}
		return max(now+time.Duration(max(x, 0)*float64(time.Second)), 1)
	}
	s := string(v)
	if d, err := time.ParseDuration(s); err == nil {
		return max(now+max(d, 0), 1)
	}
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(s)); err == nil {
		return absolute(t)
	}
	return 0
}
