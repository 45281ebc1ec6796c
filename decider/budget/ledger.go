package budget

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger counts what clients use. Its methods are safe for concurrent use; none
// blocks for longer than its lock.
type Ledger struct {
	clock func() time.Duration
	salt  [saltBytes]byte
	table atomic.Pointer[table] // nil = nothing is counted

	mu         sync.Mutex // guards what follows
	accounts   []account
	byKey      map[accountKey]uint32
	free       []uint32
	hand       uint32 // of reclaim
	most       int
	others     int // accounts without a name
	overflowed uint64
	usage      map[usageKey]*Usage
	models     map[string]bool // in usage
	agents     []string        // others that have reported
	changed    []uint32        // slots of accounts to publish
	scanned    int             // the last slot that Reports has looked at
}

// table is a configuration made ready. It is immutable except for the counts of its limits,
// which the ledger's lock guards.
type table struct {
	keys     map[ID]*named
	groups   [][]*limit // by set of dimensions, in the order of the configuration
	limits   []*limit
	together bool
}

// named is a key that has a name.
type named struct {
	name, tenant string
	tenantID     ID
}

// New returns a ledger that counts nothing until Apply. Clock never goes back. Keys are
// hashed with secret, which is the same in all agents that share their counts.
func New(clock func() time.Duration, secret []byte) *Ledger {
	l := &Ledger{
		clock: clock, byKey: map[accountKey]uint32{}, most: DefaultMostAccounts,
		usage: map[usageKey]*Usage{}, models: map[string]bool{},
	}
	l.salt = sha256.Sum256(append([]byte("pointsman budgets\x00"), secret...))
	return l
}

// On reports whether anything is counted.
func (l *Ledger) On() bool { return l != nil && l.table.Load() != nil }

// Apply makes c the configuration. What was counted under a limit whose name stays
// is kept.
func (l *Ledger) Apply(c Config) {
	if len(c.Keys)+len(c.Limits) == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.table.Store(nil)
		l.retain(nil)
		return
	}
	t := &table{keys: map[ID]*named{}, together: c.Together}
	for i := range c.Keys {
		k := &c.Keys[i]
		t.keys[l.idOf(&k.Sum)] = &named{name: k.Name, tenant: k.Tenant, tenantID: l.named("tenant", k.Tenant)}
	}
	at := map[Dimension]int{}
	for _, one := range c.Limits {
		n := newLimit(one)
		g, ok := at[one.By]
		if !ok {
			g = len(t.groups)
			at[one.By] = g
			t.groups = append(t.groups, nil)
		}
		t.groups[g] = append(t.groups[g], n)
		t.limits = append(t.limits, n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most = c.MostAccounts; l.most == 0 {
		l.most = DefaultMostAccounts
	}
	now := l.clock()
	if old := l.table.Load(); old != nil {
		for _, n := range t.limits {
			for _, o := range old.limits {
				if o.Name == n.Name {
					n.refused = o.refused
				}
			}
		}
	}
	l.retain(t)
	for _, n := range t.limits {
		n.overflow = l.open(n, l.named("overflow", ""), true, now)
	}
	l.table.Store(t)
}

// retain closes the accounts of limits that t does not have.
func (l *Ledger) retain(t *table) {
	known := map[uint64]bool{}
	if t != nil {
		for _, n := range t.limits {
			known[n.mark] = true
		}
	}
	for key, i := range l.byKey {
		if !known[key.limit] {
			l.close(i)
		}
	}
}

// named is the id of something that has a name.
func (l *Ledger) named(kind, name string) ID {
	sum := sha256.Sum256([]byte(kind + "\x00" + name))
	return l.idOf(&sum)
}

// Client is who sends a request, by its key.
type Client struct {
	id    ID
	known *named // nil = the key has no name
	has   bool   // there is a key
}

// Named reports whether the key has a name.
func (c *Client) Named() bool { return c.known != nil }

// Name is the name of the client's key, "" if it has none.
func (c *Client) Name() string {
	if c.known == nil {
		return ""
	}
	return c.known.name
}

// Tenant is the tenant of the client's key, "" if it has none.
func (c *Client) Tenant() string {
	if c.known == nil {
		return ""
	}
	return c.known.tenant
}

// Identify finds the client of a key, which may be empty. It does not allocate, and does
// not keep the key.
func (l *Ledger) Identify(key []byte) (c Client) {
	t := l.table.Load()
	if t == nil || len(key) == 0 {
		return c
	}
	sum := sha256.Sum256(key)
	c.id, c.has = l.idOf(&sum), true
	c.known = t.keys[c.id]
	if c.known == nil && t.together {
		c.id = ID{}
	}
	return c
}
