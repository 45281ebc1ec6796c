package state

import (
	"log/slog"
	"testing"
	"time"

	"pointsman/decider/budget"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// What clients have used counts on in the agent's next life.
func TestBudgetsAreKept(t *testing.T) {
	dir := t.TempDir()
	live := func() (*Keeper, func(tokens int) bool) {
		k := Open(dir, slog.New(slog.DiscardHandler))
		p := decidertest.New(policy.LeastWork{}, 1)
		began := time.Now()
		b := budget.New(func() time.Duration { return time.Since(began) }, secret)
		b.Apply(budget.Config{Limits: []budget.Limit{{Name: "a-key", By: budget.ByKey, PerDay: 1000}}})
		p.Decider.Budgets = b
		k.Keep(p.Decider, secret)
		k.Restore()
		return k, func(tokens int) bool {
			_, v := b.Charge(b.Identify([]byte("sk-alice")), "m", tokens, false)
			return !v.Refused
		}
	}
	first, passes := live()
	if !passes(900) {
		t.Fatal("refused")
	}
	first.Close()
	second, passes := live()
	defer second.Close()
	if passes(200) || !passes(100) {
		t.Error("what was used is forgotten")
	}
}
