package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"pointsman/decider/queue"
)

// Admission says how a pool's requests wait for its replicas and which are
// refused. A file that has the key, with or without anything under it, turns
// it on.
type Admission struct {
	On bool `yaml:"-"`
	// Wait is where requests wait: agent, proxy, or empty for what suits the
	// proxy's version.
	Wait string `yaml:"wait"`
	// Matching is out_of_order or fifo, or empty for out_of_order.
	Matching string `yaml:"matching"`
	// NoReplica is what becomes of requests while no replica is up: answer, what
	// they get without an admission, or hold. Empty is answer.
	NoReplica string `yaml:"no_replica"`
	// BandHeader names a request's band, DeadlineHeader its deadline. Empty:
	// clients have no say.
	BandHeader     string `yaml:"band_header"`
	DeadlineHeader string `yaml:"deadline_header"`
	// Tenants are what tells tenants apart, the first that a request has:
	// user, api_key, session, or a header's name. Empty: all are one.
	Tenants       []string       `yaml:"tenants"`
	TenantWeights map[string]int `yaml:"tenant_weights"`
	// ResponseHeaders tells clients the band and the time held.
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

// complete fills in what an admission has without being told.
func (a *Admission) complete() {
	if len(a.Bands) == 0 {
		b := &Band{Name: DefaultBand, Order: Orders[queue.ByArrival], TTL: queue.DefaultTTL, MaxRequests: queue.DefaultMaxRequests}
		a.Bands = map[string]*Band{b.Name: b}
	}
}

// BindLate makes the admission that of a policy which holds requests by
// itself: the least work first, where the file says nothing else.
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

// admission checks a pool's.
func (v *validator) admission(p *Pool) {
	a := &p.Admission
	if !a.On {
		return
	}
	path := in("pools", p.Name) + ".admission"
	oneOf := func(path, value string, valid []string) {
		if !slices.Contains(valid, value) {
			v.refuse(path, "%s", unknown("", value, valid))
		}
	}
	if a.Wait != "" {
		oneOf(path+".wait", a.Wait, Waits)
	}
	if a.Matching != "" {
		oneOf(path+".matching", a.Matching, Matchings)
	}
	if a.Wait == "proxy" && a.Matching == "fifo" {
		v.refuse(path+".matching", "the proxy queues at the server that was chosen; want out_of_order, or wait: agent")
	}
	if a.NoReplica != "" {
		oneOf(path+".no_replica", a.NoReplica, NoReplicas)
	}
	if a.NoReplica == "hold" {
		v.holdsWithout(p, path+".no_replica")
	}
	if a.Wait == "proxy" && !p.Limited() {
		v.refuse(path+".wait", "nothing ever waits in the proxy while replicas take any number of requests; want max_requests, or wait: agent")
	}
	for key, h := range map[string]string{"band_header": a.BandHeader, "deadline_header": a.DeadlineHeader} {
		if h != "" && !isHeader(h) {
			v.refuse(path+"."+key, "%s is no header name; want one as x-session-id", quote(h))
		}
	}
	for i, t := range a.Tenants {
		if !isHeader(t) {
			v.refuse(fmt.Sprintf("%s.tenants[%d]", path, i), "%s is no header name; want user, api_key, session or one as x-session-id", quote(t))
		}
	}
	if len(a.TenantWeights) > 0 && len(a.Tenants) == 0 {
		v.refuse(path+".tenant_weights", "nothing tells tenants apart; want tenants")
	}
	for _, t := range slices.Sorted(maps.Keys(a.TenantWeights)) {
		within(v, in(path+".tenant_weights", t), a.TenantWeights[t], 1, 1000)
	}
	if len(a.TenantWeights) > 100 {
		v.refuse(path+".tenant_weights", "want at most 100, not %s: each is a label of metrics", strconv.Itoa(len(a.TenantWeights)))
	}
	if len(a.Bands) > 16 {
		v.refuse(path+".bands", "want at most 16, not %d", len(a.Bands))
	}
	weighted := ""
	for _, b := range a.Ordered() {
		at := in(path+".bands", b.Name)
		if !nameForm.MatchString(b.Name) {
			v.refuse(at, "no name for a band; %s", nameWant)
		}
		oneOf(at+".order", b.Order, Orders)
		within(v, at+".weight", b.Weight, 0, 1000)
		within(v, at+".ttl", b.TTL, 10*time.Millisecond, 10*time.Minute)
		within(v, at+".deadline", b.Deadline, 0, 24*time.Hour)
		within(v, at+".max_requests", b.MaxRequests, 1, 100_000)
		within(v, at+".max_bytes", b.MaxBytes, 0, 1<<40)
		within(v, at+".priority", b.Priority.Value, -1<<31, 1<<31)
		if b.Weight > 0 {
			weighted = b.Name
		} else if weighted != "" {
			v.refuse(at, "has no weight, and comes strictly first: want it before %s, which has one", label(weighted))
		}
		if b.Spill != "" && (v.config.Pools[b.Spill] == nil || b.Spill == p.Name) {
			var others []string
			for _, o := range v.config.Ordered() {
				if o != p {
					others = append(others, label(o.Name))
				}
			}
			if len(others) == 0 {
				v.refuse(at+".spill", "there is no other pool to take what is too much")
			} else {
				v.refuse(at+".spill", "%s", unknown("pool ", b.Spill, others))
			}
		}
		for i, prefix := range b.Paths {
			if !strings.HasPrefix(prefix, "/") {
				v.refuse(fmt.Sprintf("%s.paths[%d]", at, i), "%s begins no path; want a prefix as /v1/embeddings", quote(prefix))
			}
		}
		if len(b.Tenants) > 0 && len(a.Tenants) == 0 {
			v.refuse(at+".tenants", "nothing tells tenants apart; want tenants beside bands")
		}
	}
}

// holdsWithout checks a pool that holds requests while no replica is up.
func (v *validator) holdsWithout(p *Pool, path string) {
	h := &v.config.HAProxy
	switch {
	case p.Admission.Wait == "proxy":
		v.refuse(path, "the proxy holds nothing for a replica that is to come; want wait: agent, or answer")
	case h.RuntimeAPI == "" && p.Health.Poll == 0 && p.Discover.DNS == "" && p.Discover.File == "":
		v.refuse(path, "nothing tells whether a replica is up; want haproxy.runtime_api, or the pool's health.poll or discover")
	case h.Poll > longestLook:
		v.refuse(path, "with haproxy.poll %s the word of HAProxy is too old to hold requests for it; want at most %s", show(h.Poll), show(longestLook))
	}
}

// longestLook is the longest haproxy.poll for pools that hold requests while no
// replica is up: what HAProxy said 15 s ago is not believed then.
const longestLook = 5 * time.Second

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

// Refusal is the error that tells something wrong with the value of key, in
// pool p or, where that is nil, in the whole.
func (c *Config) Refusal(p *Pool, key, format string, args ...any) error {
	if p != nil {
		key = in("pools", p.Name) + "." + key
	}
	return c.src.errorAt(key, format, args...)
}
