package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pointsman/decider"
)

// wantFault fails unless the options are refused because of that one.
func wantFault(t *testing.T, o Validator, option string) {
	t.Helper()
	if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), option+": want ") && !strings.HasPrefix(err.Error(), option+": unknown ") {
		t.Errorf("%+v: %v, want the fault at %s", o, err, option)
	}
}

// given are options in a configuration.
type given struct {
	set     func(into any)
	unknown bool
}

func (g given) Decode(into any) error {
	if g.unknown {
		return errors.New("unknown option")
	}
	if g.set != nil {
		g.set(into)
	}
	return nil
}

func (given) Refuse(option, format string, args ...any) error {
	return fmt.Errorf("at %s: "+format, append([]any{option}, args...)...)
}

func TestTable(t *testing.T) {
	built := 0
	table := Table{
		Plain("random", func() decider.Policy { return Random{} }),
		With("session", SessionDefaults, func(o SessionOptions) (*Session, error) { built++; return NewSession(o) }),
		Plain("least_work_late", func() decider.Policy { return LeastWorkLate{} }).BindsLate(),
	}
	if got := strings.Join(table.Names(), " "); got != "random session least_work_late" {
		t.Errorf("names %s", got)
	}
	if table.Late("random") || !table.Late("least_work_late") || table.Late("none") {
		t.Error("want least_work_late alone to be late")
	}
	bad := given{set: func(o any) { o.(*SessionOptions).Fallbacks = 7 }}
	for name, options := range map[string]given{"session": bad, "none": {}, "random": {unknown: true}} {
		want := map[string]string{"session": "at fallbacks: want 0, 1 or 2", "none": "unknown policy none", "random": "unknown option"}[name]
		if err := table.Check(name, options); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if _, _, err := table.New(name, options); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if err := table.Check("session", given{}); err != nil || built != 0 {
		t.Errorf("%v, and built %d policies to check one", err, built)
	}
	_, key, err := table.New("session", given{})
	_, other, _ := table.New("session", given{set: func(o any) { o.(*SessionOptions).Fallbacks = 1 }})
	if err != nil || key == other || built != 2 {
		t.Errorf("%v, keys %q and %q of different options, %d policies", err, key, other, built)
	}
}

// Each policy has options that are valid by default, or none.
func TestDefaultsAreValid(t *testing.T) {
	for _, o := range []Validator{
		none{}, SessionDefaults, PrefixAffinityDefaults, CacheAwareDefaults, PrefixCacheDefaults, KVCostDefaults, PredictedLatencyDefaults,
		WeightedDefaults, decider.TokenDefaults, ExpressionOptions{"0"},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}
