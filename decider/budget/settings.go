package budget

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// Dimension is what a limit counts apart; several are or-ed.
type Dimension uint8

// The dimensions.
const (
	ByKey Dimension = 1 << iota
	ByTenant
	ByModel
)

// dimensionNames are the names of the dimensions in the configuration.
var dimensionNames = []string{"api_key", "tenant", "model"}

// DimensionNames are the valid names of dimensions.
func DimensionNames() []string { return slices.Clone(dimensionNames) }

// DimensionOf is the dimension of that name, 0 if there is none.
func DimensionOf(name string) Dimension {
	if i := slices.Index(dimensionNames, name); i >= 0 {
		return 1 << i
	}
	return 0
}

// Limit bounds the tokens of the requests that it fits. Of the limits with the same
// By, the first that fits a request counts.
type Limit struct {
	Name string
	By   Dimension // what is counted apart; 0 = all together
	// Keys, Tenants and Models are the requests that it fits; none = all.
	Keys, Tenants, Models []string
	PerMinute, PerDay     int64 // tokens; 0 = no limit
}

// Key is an API key that has a name.
type Key struct {
	Name   string
	Sum    [sha256.Size]byte // the SHA-256 of the key
	Tenant string            // "" = none
}

// Config says what is counted and limited.
type Config struct {
	Keys   []Key
	Limits []Limit
	// Together counts all keys without a name as one.
	Together bool
	// MostAccounts bounds the accounts without a name; 0 = DefaultMostAccounts.
	MostAccounts int
}

// DefaultMostAccounts is the default of Config.MostAccounts.
const DefaultMostAccounts = 10_000

// MostGroups bounds the limits that one request falls under: one for each set of
// dimensions.
const MostGroups = 4

// Window is a time in which tokens are counted.
type Window uint8

// The windows.
const (
	Minute Window = iota
	Day
	windows
)

func (w Window) String() string { return [...]string{"minute", "day"}[w] }

// span is the length of the window, and step that of the parts in which it slides. Used
// tokens count for at least one window, and at most one step more.
func (w Window) span() time.Duration { return [...]time.Duration{time.Minute, 24 * time.Hour}[w] }
func (w Window) step() time.Duration {
	return [...]time.Duration{3 * time.Second, 30 * time.Minute}[w]
}

// limit is a Limit made ready.
type limit struct {
	Limit
	mark      uint64 // equal for limits of the same name, in all agents
	keys      map[string]bool
	tenants   map[string]bool
	most      [windows]int64  // 0 = no limit
	exhausted [windows]string // the message for the client
	tooLarge  [windows]string
	refused   uint64
	overflow  uint32 // slot of the account that clients without their own share
}

func newLimit(l Limit) *limit {
	n := &limit{Limit: l, mark: markOf(l.Name), keys: set(l.Keys), tenants: set(l.Tenants), most: [windows]int64{l.PerMinute, l.PerDay}}
	for w := range windows {
		n.exhausted[w] = fmt.Sprintf("Rate limit reached: %d tokens per %s (%s).", n.most[w], w, l.Name)
		n.tooLarge[w] = fmt.Sprintf("The request alone has more tokens than the limit allows: %d per %s (%s).", n.most[w], w, l.Name)
	}
	return n
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// fits reports whether the limit is for requests of that client and model.
func (l *limit) fits(c *Client, model string) bool {
	if l.keys != nil && !l.keys[c.Name()] || l.tenants != nil && !l.tenants[c.Tenant()] {
		return false
	}
	if l.By&ByTenant != 0 && c.Tenant() == "" {
		return false
	}
	return len(l.Models) == 0 || slices.Contains(l.Models, model)
}
