package replay

import (
	"slices"
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// testPolicies is a table with one policy of each kind.
var testPolicies = policy.Table{
	policy.Plain("round_robin", func() decider.Policy { return &policy.RoundRobin{} }),
	policy.Plain("least_work_late", func() decider.Policy { return policy.LeastWorkLate{} }).BindsLate(),
	policy.With("session", policy.SessionDefaults, policy.NewSession),
}

func TestParsePolicies(t *testing.T) {
	list, err := ParsePolicies(testPolicies, []string{"round_robin, session:load_bound=1.25:fallbacks=1,{name: session, fallbacks: 0}", "least_work_late", "shared_cache"}, SharedCache)
	if err != nil {
		t.Fatal(err)
	}
	var names, flows []string
	for _, p := range list {
		names, flows = append(names, p.Name), append(flows, p.Flow)
		late := p.Name == "least_work_late"
		if p.Late != late || (p.Admission(false) != nil) != late {
			t.Errorf("%s: late %v, admission %v", p.Name, p.Late, p.Admission(false))
		}
		if (p.New == nil) != (p.Name == SharedCache) {
			t.Errorf("%s: New is nil: %v", p.Name, p.New == nil)
		}
		if p.New == nil {
			continue
		}
		if made, err := p.New(); made == nil || err != nil {
			t.Errorf("%s: %v %v", p.Name, made, err)
		}
	}
	if want := []string{"round_robin", "session:load_bound=1.25:fallbacks=1", "{name: session, fallbacks: 0}", "least_work_late", "shared_cache"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if want := []string{"{name: round_robin}", "{name: session, load_bound: 1.25, fallbacks: 1}", "{name: session, fallbacks: 0}", "{name: least_work_late}", ""}; !slices.Equal(flows, want) {
		t.Errorf("flow mappings %q, want %q", flows, want)
	}
}

func TestParsePoliciesErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"":                     "policy: an empty name; want one of round_robin, least_work_late, session, shared_cache",
		"session,":             "policy: an empty name",
		"p2":                   `unknown "p2"; want `,
		"session:fallbacks":    `policy session: "fallbacks", want option=value`,
		"session:fallbacks=7":  "want 0, 1 or 2",
		"session:load_bond=2":  "load_bond",
		"{name: session":       "{name: session: ",
		"round_robin:seed=1":   "seed",
		"shared_cache:seeds=1": "unknown policy shared_cache",
	} {
		if _, err := ParsePolicies(testPolicies, []string{spec}, SharedCache); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want … %s …", spec, err, want)
		}
	}
	if _, err := ParsePolicies(testPolicies, []string{SharedCache}); err == nil {
		t.Error("accepted a bound that the caller does not offer")
	}
}

func TestSplitOutside(t *testing.T) {
	for s, want := range map[string][]string{
		"a,b":                 {"a", "b"},
		"":                    {""},
		"{a: 1, b: [2, 3]},c": {"{a: 1, b: [2, 3]}", "c"},
		`x="a,b",y='c,"',z`:   {`x="a,b"`, `y='c,"'`, "z"},
		"f(a, b), g":          {"f(a, b)", " g"},
	} {
		if got := splitOutside(s, ','); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}
