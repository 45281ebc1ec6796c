package queue

import (
	"slices"
	"time"
)

// Config describes the bands of a queue and the tenants with their own share.
type Config struct {
	Bands  []Band // the most urgent first; at least one
	Shares []Share
}

// Band is a class of requests.
type Band struct {
	Name string
	// Weight is the band's share of the work among the bands that have a weight.
	// Bands without one come first, strictly in their order.
	Weight int
	Order  Order

	TTL         time.Duration // the longest that a request waits; 0 = DefaultTTL
	MaxRequests int           // that may wait; 0 = DefaultMaxRequests
	MaxBytes    int           // of their bodies; 0 = no limit
	// Spill names where the owner sends requests beyond the limits. "" = they
	// are refused. The queue itself does not use it.
	Spill string
}

// Share is a tenant whose weight may differ from 1, and which is counted by name.
type Share struct {
	Name   string
	Tenant uint64 // its hash, as in Entry
	Weight int    // below 1 counts as 1
}

// Defaults of a Band.
const (
	DefaultTTL         = 30 * time.Second
	DefaultMaxRequests = 1000
)

// Order is the order of a tenant's requests within a band.
type Order uint8

// The orders.
const (
	ByArrival  Order = iota // first come, first served
	ByDeadline              // earliest deadline first; requests without one come last
	ByWork                  // shortest prefill first, less a credit for waiting
	Orders                  // the number of orders
)

var orderNames = [Orders]string{"arrival", "deadline", "work"}

// OrderNames are the names of the orders, indexed by their values.
func OrderNames() []string { return orderNames[:] }

// OtherTenants is the name under which tenants without a Share are counted.
const OtherTenants = "other"

// Settings is a Config with its defaults applied. It is immutable.
type Settings struct {
	bands   []Band
	classes map[uint64]int // of tenants with a share: an index of names and weights
	names   []string       // of the classes; the first is OtherTenants
	weights []float64
}

// NewSettings applies the defaults to c, which must have a band.
func NewSettings(c Config) *Settings {
	s := &Settings{bands: slices.Clone(c.Bands), classes: map[uint64]int{}, names: []string{OtherTenants}, weights: []float64{1}}
	for i := range s.bands {
		b := &s.bands[i]
		if b.TTL == 0 {
			b.TTL = DefaultTTL
		}
		if b.MaxRequests == 0 {
			b.MaxRequests = DefaultMaxRequests
		}
	}
	for _, share := range c.Shares {
		s.classes[share.Tenant] = len(s.names)
		s.names = append(s.names, share.Name)
		s.weights = append(s.weights, float64(max(share.Weight, 1)))
	}
	return s
}

// Len is the number of bands.
func (s *Settings) Len() int { return len(s.bands) }

// Band is the band at index i, or the last one where i is beyond it. It must
// not be changed.
func (s *Settings) Band(i int) *Band { return &s.bands[s.Clamp(i)] }

// Clamp is i, or the index of the last band where i is beyond it.
func (s *Settings) Clamp(i int) int { return min(i, len(s.bands)-1) }

// Index is the index of the band of that name, or of the last one.
func (s *Settings) Index(name string) int {
	for i := range s.bands {
		if s.bands[i].Name == name {
			return i
		}
	}
	return len(s.bands) - 1
}

// Class is the name under which a tenant is counted.
func (s *Settings) Class(tenant uint64) string { return s.names[s.classes[tenant]] }

// weighted reports whether the band has a weight.
func (s *Settings) weighted(band int) bool { return s.bands[band].Weight > 0 }
