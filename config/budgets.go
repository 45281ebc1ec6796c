package config

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"pointsman/decider/budget"
)

// Budgets say whose tokens are counted, and which of them are limited. Without keys
// and limits nothing is.
type Budgets struct {
	// KeyHeaders are the headers that may carry an API key.
	KeyHeaders []string `yaml:"key_headers"`
	// UnknownKeys says how keys without a name are counted: one of UnknownKeys, or
	// empty for together where any key has a name, and each where none has.
	UnknownKeys string `yaml:"unknown_keys"`
	// MaxAccounts bounds what is counted apart, besides what has a name.
	MaxAccounts int                     `yaml:"max_accounts"`
	Keys        map[string]*BudgetKey   `yaml:"keys"`
	Limits      map[string]*BudgetLimit `yaml:"limits"`
}

// BudgetKey is an API key with a name.
type BudgetKey struct {
	Name   string `yaml:"-"`
	SHA256 string `yaml:"sha256"` // of the key, in hexadecimal
	Tenant string `yaml:"tenant"` // to which it belongs; empty = none

	line, col int
}

// BudgetLimit is a limit of tokens. Of those with the same By, the first in the file that
// fits a request counts.
type BudgetLimit struct {
	Name            string   `yaml:"-"`
	By              []string `yaml:"by"` // what is counted apart: some of api_key, tenant, model
	APIKeys         []string `yaml:"api_keys"`
	Tenants         []string `yaml:"tenants"`
	Models          []string `yaml:"models"`
	TokensPerMinute int      `yaml:"tokens_per_minute"`
	TokensPerDay    int      `yaml:"tokens_per_day"`

	line, col int
}

// UnknownKeys are the valid values of Budgets.UnknownKeys.
var UnknownKeys = []string{"each", "together"}

// budgetKeyHeaders are where clients of OpenAI's and Anthropic's APIs put their keys.
var budgetKeyHeaders = []string{"authorization", "x-api-key"}

// Bounds of budgets. Each key is a label in the metrics.
const (
	mostBudgetKeys   = 1000
	mostBudgetLimits = 64
	mostBudget       = 1_000_000_000_000_000
)

// On reports whether anything is counted.
func (b *Budgets) On() bool { return len(b.Keys)+len(b.Limits) > 0 }

func (k *BudgetKey) begin(key *yaml.Node) { k.Name, k.line, k.col = key.Value, key.Line, key.Column }
func (l *BudgetLimit) begin(key *yaml.Node) {
	l.Name, l.line, l.col = key.Value, key.Line, key.Column
}

// OrderedKeys returns the keys in the order of the file.
func (b *Budgets) OrderedKeys() []*BudgetKey {
	return slices.SortedFunc(maps.Values(b.Keys), func(x, y *BudgetKey) int {
		return cmp.Or(cmp.Compare(x.line, y.line), cmp.Compare(x.col, y.col), cmp.Compare(x.Name, y.Name))
	})
}

// OrderedLimits returns the limits in the order of the file.
func (b *Budgets) OrderedLimits() []*BudgetLimit {
	return slices.SortedFunc(maps.Values(b.Limits), func(x, y *BudgetLimit) int {
		return cmp.Or(cmp.Compare(x.line, y.line), cmp.Compare(x.col, y.col), cmp.Compare(x.Name, y.Name))
	})
}

// Together reports whether keys without a name are counted as one.
func (b *Budgets) Together() bool {
	return b.UnknownKeys == "together" || b.UnknownKeys == "" && len(b.Keys) > 0
}

// Dimensions are what the limit counts apart.
func (l *BudgetLimit) Dimensions() (d budget.Dimension) {
	for _, name := range l.By {
		d |= budget.DimensionOf(name)
	}
	return d
}

// Sum is the SHA-256 of the key.
func (k *BudgetKey) Sum() (sum [32]byte, ok bool) {
	n, err := hex.Decode(sum[:], []byte(k.SHA256[:min(len(k.SHA256), 2*len(sum))]))
	return sum, err == nil && n == len(sum) && len(k.SHA256) == 2*len(sum)
}

func (v *validator) budgets() {
	b := &v.config.Budgets
	for i, h := range b.KeyHeaders {
		if !isHeader(h) {
			v.refuse(fmt.Sprintf("budgets.key_headers[%d]", i), "%s is not a header name; want one such as authorization", quote(h))
		}
	}
	if len(b.KeyHeaders) == 0 || len(b.KeyHeaders) > maxHeaders {
		v.refuse("budgets.key_headers", "want 1 to %d headers, not %d", maxHeaders, len(b.KeyHeaders))
	}
	if b.UnknownKeys != "" {
		v.oneOf("budgets.unknown_keys", b.UnknownKeys, UnknownKeys)
	}
	within(v, "budgets.max_accounts", b.MaxAccounts, 100, 100_000)
	if len(b.Keys) > mostBudgetKeys {
		v.refuse("budgets.keys", "want at most %d, not %s: each is a label in the metrics", mostBudgetKeys, strconv.Itoa(len(b.Keys)))
	}
	tenants, sums := map[string]bool{}, map[[32]byte]string{}
	for _, k := range b.OrderedKeys() {
		at := in("budgets.keys", k.Name)
		if !nameForm.MatchString(k.Name) {
			v.refuse(at, "not a valid name for a key; %s", nameWant)
		}
		sum, ok := k.Sum()
		switch {
		case k.SHA256 == "":
			v.refuse(at, "want sha256, the SHA-256 of the key in 64 hexadecimal digits, as printf %%s KEY | sha256sum prints it")
		case !ok: // without the value: it may be the key
			v.refuse(at+".sha256", "not a SHA-256; want 64 hexadecimal digits, as printf %%s KEY | sha256sum prints them")
		case sums[sum] != "":
			v.refuse(at+".sha256", "the same key as %s", label(sums[sum]))
		default:
			sums[sum] = k.Name
		}
		if k.Tenant != "" {
			tenants[k.Tenant] = true
			if !nameForm.MatchString(k.Tenant) {
				v.refuse(at+".tenant", "%s is not a valid name for a tenant; %s", quote(k.Tenant), nameWant)
			}
		}
	}
	v.budgetLimits(tenants)
}

// budgetLimits checks the limits, given the tenants of the keys.
func (v *validator) budgetLimits(tenants map[string]bool) {
	b := &v.config.Budgets
	if len(b.Limits) > mostBudgetLimits {
		v.refuse("budgets.limits", "want at most %d, not %s", mostBudgetLimits, strconv.Itoa(len(b.Limits)))
	}
	groups := map[budget.Dimension]bool{}
	for _, l := range b.OrderedLimits() {
		at := in("budgets.limits", l.Name)
		if !nameForm.MatchString(l.Name) {
			v.refuse(at, "not a valid name for a limit; %s", nameWant)
		}
		for i, name := range l.By {
			v.oneOf(fmt.Sprintf("%s.by[%d]", at, i), name, budget.DimensionNames())
		}
		if groups[l.Dimensions()] = true; len(groups) == budget.MostGroups+1 {
			v.refuse(at, "want at most %d different values of by: each is looked up for every request", budget.MostGroups)
		}
		if l.TokensPerMinute == 0 && l.TokensPerDay == 0 {
			v.refuse(at, "want tokens_per_minute or tokens_per_day, or both")
		}
		within(v, at+".tokens_per_minute", l.TokensPerMinute, 0, mostBudget)
		within(v, at+".tokens_per_day", l.TokensPerDay, 0, mostBudget)
		v.budgetNames(at+".api_keys", "key ", l.APIKeys, slices.Sorted(maps.Keys(b.Keys)), "no key has a name; set budgets.keys")
		v.budgetNames(at+".tenants", "tenant ", l.Tenants, slices.Sorted(maps.Keys(tenants)), "no key has a tenant; set budgets.keys")
		if l.Dimensions()&budget.ByTenant != 0 && len(tenants) == 0 {
			v.refuse(at+".by", "no key has a tenant, so no request would count; set budgets.keys")
		}
		if models := v.models(); len(models) > 0 {
			v.budgetNames(at+".models", "model ", l.Models, models, "")
		}
	}
}

// budgetNames refuses names that nothing has.
func (v *validator) budgetNames(path, what string, names, valid []string, none string) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case len(valid) == 0:
			v.refuse(at, "%s", none)
		case !slices.Contains(valid, name):
			v.refuse(at, "%s", unknown(what, name, valid))
		}
	}
}

// models are the names that requests may use; none if a pool takes any.
func (v *validator) models() (names []string) {
	for _, p := range v.config.Ordered() {
		names = append(append(names, p.Models...), p.LoRA...)
	}
	return slices.Sorted(slices.Values(append(names, slices.Collect(maps.Keys(v.config.Models))...)))
}
