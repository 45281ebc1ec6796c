package intake

import (
	"bytes"
	"time"

	"pointsman/session"
)

// Classes say how a pool's requests find their band, tenant and deadline.
type Classes struct {
	BandHeader     session.Headers // names a band; it overrides the rules
	DeadlineHeader session.Headers // of the first token; see parseDeadline
	Tenants        []TenantSource  // what identifies a tenant, the first that is present; none = there is one tenant
	// SeparatePrefixes keeps the prompts of tenants apart: one tenant's cached prompts do
	// not attract another's requests. It has no effect on policies that compare tokens.
	SeparatePrefixes bool
	// Rules choose a band, one for each of the Admission's bands in their order.
	Rules []Rule
	// Calendar is the time of day. Without it deadlines by the calendar are ignored.
	Calendar func() time.Time
}

// Rule describes the requests of a band. A request belongs to the first band whose rule it
// meets in every part that is set, or else to the last one.
type Rule struct {
	Band       string
	Deadline   time.Duration // of the first token, for requests that name none; 0 = none
	Models     []string
	Paths      []string // prefixes
	Tenants    []string
	Priority   int // the body's priority is at most this
	ByPriority bool
}

// TenantSource is one way to identify a tenant: the body's user, an API key,
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

// classifier is Classes made ready. It is immutable.
type classifier struct {
	Classes
	tenants []map[uint64]bool // by rule: Rule.Tenants, hashed
}

func newClassifier(c Classes) *classifier {
	a := &classifier{Classes: c}
	for _, rule := range c.Rules {
		set := map[uint64]bool{}
		for _, t := range rule.Tenants {
			set[session.Key([]byte(t))] = true
		}
		a.tenants = append(a.tenants, set)
	}
	return a
}

// classify finds the band, the tenant and the deadline of r.
func (a *classifier) classify(r *Request, in *Input, now time.Duration) {
	r.Tenant = a.tenant(r, in.Headers)
	r.Band = a.band(r, in)
	r.Deadline = 0
	if v, ok := a.DeadlineHeader.Find(in.Headers); ok {
		r.Deadline = parseDeadline(v, now, a.Calendar)
	}
	if r.Band < len(a.Rules) && r.Deadline == 0 && a.Rules[r.Band].Deadline > 0 {
		r.Deadline = now + a.Rules[r.Band].Deadline
	}
}

// tenant is the hash of r's tenant, 0 when no source is present.
func (a *classifier) tenant(r *Request, headers []byte) uint64 {
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
			if id, _ = s.headers.Find(headers); s.kind == tenantKey {
				id = withoutBearer(id)
			}
		}
		if len(id) > 0 {
			return session.Key(id)
		}
	}
	return 0
}

// withoutBearer is the key in the value of a header.
func withoutBearer(value []byte) []byte {
	if len(value) > len(bearer) && bytes.EqualFold(value[:len(bearer)], bearer) {
		return bytes.TrimLeft(value[len(bearer):], " ")
	}
	return value
}

var bearer = []byte("Bearer ")

// band is the place of r's band.
func (a *classifier) band(r *Request, in *Input) int {
	if name, ok := a.BandHeader.Find(in.Headers); ok {
		for i := range a.Rules {
			if a.Rules[i].Band == string(name) {
				return i
			}
		}
	}
	for i := range a.Rules {
		if a.fits(i, r, in) {
			return i
		}
	}
	return max(len(a.Rules)-1, 0)
}

func (a *classifier) fits(i int, r *Request, in *Input) bool {
	b := &a.Rules[i]
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
