package budget

import (
	"cmp"
	"slices"
	"time"
)

// Usage is what the requests of a key for a model have used since the start.
type Usage struct {
	Key      string `json:"key"` // its name, or Others or NoKey
	Tenant   string `json:"tenant,omitempty"`
	Model    string `json:"model"` // as configured; "" = none that is known
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"` // over a limit
	Free     uint64 `json:"free"`    // cost nothing: refused or failed before they ran; not in Requests
	Input    uint64 `json:"input_tokens"`
	Returned uint64 `json:"returned_tokens"` // of the free requests; not in Input
	Output   uint64 `json:"output_tokens"`   // estimated
}

// The Keys of usage whose keys have no name.
const (
	Others = "(other)" // keys without a name
	NoKey  = "(none)"  // requests without a key
)

// usageKey names a usage: it holds strings of the configuration alone.
type usageKey struct{ key, tenant, model string }

// mostModels bounds the models of the usage; the others count as "".
const mostModels = 1000

// usageOf is the usage of a client and a model.
func (l *Ledger) usageOf(c *Client, model string) *Usage {
	k := usageKey{key: c.Name(), tenant: c.Tenant(), model: model}
	switch {
	case c.known != nil:
	case c.has:
		k.key = Others
	default:
		k.key = NoKey
	}
	if u := l.usage[k]; u != nil {
		return u
	}
	if !l.models[model] {
		if len(l.models) >= mostModels {
			k.model = ""
		}
		l.models[k.model] = true
		if u := l.usage[k]; u != nil {
			return u
		}
	}
	u := &Usage{Key: k.key, Tenant: k.tenant, Model: k.model}
	l.usage[k] = u
	return u
}

// Usage returns what was used since the start, by key and model.
func (l *Ledger) Usage() []Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Usage, 0, len(l.usage))
	for _, u := range l.usage {
		one := *u
		one.Requests -= one.Free
		one.Input -= one.Returned
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model))
	})
	return list
}

// LimitStatus is the state of a limit.
type LimitStatus struct {
	Name      string `json:"name"`
	By        string `json:"by"` // "all" = nothing is counted apart
	PerMinute int64  `json:"tokens_per_minute,omitempty"`
	PerDay    int64  `json:"tokens_per_day,omitempty"`
	Accounts  int    `json:"accounts"` // counted apart
	Exhausted int    `json:"exhausted"`
	Refused   uint64 `json:"refused"` // requests
}

// Status is what the ledger counts.
type Status struct {
	Limits []LimitStatus `json:"limits"`
	// Accounts are those of keys without a name; Most bounds them. Overflowed counts
	// requests that found no room and were counted together.
	Accounts   int    `json:"accounts"`
	Most       int    `json:"max_accounts"`
	Overflowed uint64 `json:"overflowed"`
}

// Status returns the state of the limits; nil if nothing is counted.
func (l *Ledger) Status() *Status {
	if !l.On() {
		return nil
	}
	s := &Status{Limits: []LimitStatus{}}
	index := map[uint64]int{}
	l.mu.Lock()
	t := l.table.Load()
	s.Accounts, s.Most, s.Overflowed = l.others, l.most, l.overflowed
	if t != nil {
		for _, n := range t.limits {
			index[n.mark] = len(s.Limits)
			s.Limits = append(s.Limits, LimitStatus{Name: n.Name, By: n.By.String(), PerMinute: n.PerMinute, PerDay: n.PerDay, Refused: n.refused})
		}
	}
	l.mu.Unlock()
	for from := 0; l.step(&from, func(a *account, now time.Duration) {
		at, ok := index[a.key.limit]
		if !ok || a.idle(now) {
			return
		}
		x := &s.Limits[at]
		x.Accounts++
		for w := range windows {
			if most := t.limits[at].most[w]; most > 0 && a.total(w, now) >= most {
				x.Exhausted++
				break
			}
		}
	}); {
	}
	return s
}

// stepSize is how many accounts a walk over all of them visits at a time with the ledger
// locked: decisions wait meanwhile.
const stepSize = 256

// step calls f for the next accounts from a slot on, and reports whether there are more.
func (l *Ledger) step(from *int, f func(a *account, now time.Duration)) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, end := l.clock(), min(*from+stepSize, len(l.accounts))
	for ; *from < end; *from++ {
		if a := &l.accounts[*from]; a.key != (accountKey{}) {
			f(a, now)
		}
	}
	return *from < len(l.accounts)
}

// String lists the dimensions.
func (d Dimension) String() string {
	text := ""
	for i, name := range dimensionNames {
		if d&(1<<i) != 0 {
			if text != "" {
				text += "+"
			}
			text += name
		}
	}
	return cmp.Or(text, "all")
}
