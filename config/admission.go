package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"pointsman/decider/queue"
)

// Admission says how a pool's requests wait for its replicas, and which are
// refused. The key turns it on, with or without anything under it.
type Admission struct {
	On bool `yaml:"-"`
	// Wait is where requests wait: agent, proxy, or empty for what suits the
	// proxy's version.
	Wait string `yaml:"wait"`
	// Matching is out_of_order or fifo, or empty for out_of_order.
	Matching string `yaml:"matching"`
	// NoReplica says what happens to requests while no replica is up: answer, as
	// without an admission, or hold. Empty is answer.
	NoReplica string `yaml:"no_replica"`
	// BandHeader and DeadlineHeader are the headers that hold a request's band
	// and deadline. Empty: clients cannot set them.
	BandHeader     string `yaml:"band_header"`
	DeadlineHeader string `yaml:"deadline_header"`
	// Tenants are what identifies a tenant, the first that a request has:
	// user, api_key, session, or a header's name. Empty: all are one.
	Tenants       []string       `yaml:"tenants"`
	TenantWeights map[string]int `yaml:"tenant_weights"`
	// SeparatePrefixes keeps what one tenant has cached from attracting another's
	// requests.
	SeparatePrefixes bool `yaml:"separate_prefixes"`
	// ResponseHeaders sends clients the band and the time held.
	ResponseHeaders bool             `yaml:"response_headers"`
	Bands           map[string]*Band `yaml:"bands"`
}

// Band is a class of requests; the first in the file is the most urgent.
type Band struct {
	Name        string        `yaml:"-"`
	Weight      int           `yaml:"weight"` // 0 = strictly before those that follow
	Order       string        `yaml:"order"`  // one of Orders
	TTL         time.Duration `yaml:"ttl"`
	Deadline    time.Duration `yaml:"deadline"` // 0 = none
	MaxRequests int           `yaml:"max_requests"`
	MaxBytes    Bytes         `yaml:"max_bytes"` // 0 = no limit
	Spill       string        `yaml:"spill"`     // a pool, empty = refuse

	Models   []string `yaml:"models"`
	Paths    []string `yaml:"paths"`
	Tenants  []string `yaml:"tenants"`
	Priority Bound    `yaml:"priority"` // the body's is at most this

	line, col int
}

// Bound is a whole number that may be absent.
type Bound struct {
	Set   bool
	Value int
}

// Waits, Matchings, NoReplicas and Orders are the valid values of
// Admission.Wait, Admission.Matching, Admission.NoReplica and Band.Order.
var (
	Waits      = []string{"agent", "proxy"}
	Matchings  = []string{"out_of_order", "fifo"}
	NoReplicas = []string{"answer", "hold"}
	Orders     = queue.OrderNames()
)

// DefaultBand is the only band of an admission that names none.
const DefaultBand = "default"

func (a *Admission) decode(d *decoder, n *yaml.Node, path string) {
	a.On = true
	d.fields(n, path, reflect.ValueOf(a).Elem())
	a.complete()
}

// complete adds the default band to an admission without bands.
func (a *Admission) complete() {
	if len(a.Bands) == 0 {
		b := &Band{Name: DefaultBand, Order: Orders[queue.ByArrival], TTL: queue.DefaultTTL, MaxRequests: queue.DefaultMaxRequests}
		a.Bands = map[string]*Band{b.Name: b}
	}
}

// BindLate turns the admission on for a policy that holds requests by itself.
// Unless the file has an admission, the request with the least work comes first.
func (a *Admission) BindLate() {
	if a.On {
		return
	}
	*a = Admission{On: true, Wait: "agent"}
	a.complete()
	a.Bands[DefaultBand].Order = Orders[queue.ByWork]
}

func (b *Bound) decode(d *decoder, n *yaml.Node, path string) {
	d.scalar(n, path, reflect.ValueOf(&b.Value).Elem())
	b.Set = true
}

func (b *Band) begin(key *yaml.Node) {
	b.Name, b.line, b.col = key.Value, key.Line, key.Column
	b.Order, b.TTL, b.MaxRequests = Orders[queue.ByArrival], queue.DefaultTTL, queue.DefaultMaxRequests
}

// Ordered returns the bands in the order of the file.
func (a *Admission) Ordered() []*Band {
	return slices.SortedFunc(maps.Values(a.Bands), func(x, y *Band) int {
		return cmp.Or(cmp.Compare(x.line, y.line), cmp.Compare(x.col, y.col), cmp.Compare(x.Name, y.Name))
	})
}

// LongestWait is the longest time to live of the bands.
func (a *Admission) LongestWait() (most time.Duration) {
	for _, b := range a.Bands {
		most = max(most, b.TTL)
	}
	return most
}

// MostWaiting is how many requests may wait in all bands together.
func (a *Admission) MostWaiting() (n int) {
	for _, b := range a.Bands {
		n += b.MaxRequests
	}
	return n
}

// Limited reports whether all replicas are known to take a number of requests
// at most.
func (p *Pool) Limited() bool {
	for _, r := range p.Replicas {
		if r.MaxRequests == 0 && p.MaxRequests == 0 {
			return false
		}
	}
	return p.MaxRequests > 0 || len(p.Replicas) > 0
}

// Given reports whether the file sets the key at path, as "haproxy.bufsize".
func (c *Config) Given(path string) bool {
	if c.src == nil {
		return false
	}
	_, ok := c.src.at[path]
	return ok
}

// Refusal is an error at the position of key: a key of pool p or, where p is nil,
// of the file.
func (c *Config) Refusal(p *Pool, key, format string, args ...any) error {
	if p != nil {
		key = in("pools", p.Name) + "." + key
	}
	return c.src.errorAt(key, format, args...)
}
