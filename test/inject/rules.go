package inject

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"pointsman/advice"
)

// Rules are those of the findings that the tests of a package have seen. The zero value
// is ready.
type Rules struct {
	mu   sync.Mutex
	seen []string
}

// See takes in a finding.
func (r *Rules) See(f advice.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.seen, f.Rule) {
		r.seen = append(r.seen, f.Rule)
	}
}

// Tested runs the tests of a package. It fails when all have run, and a rule that the
// package has was seen in none of them.
type Tested struct {
	M     *testing.M
	Rules *Rules
}

var ruleNamed = regexp.MustCompile(`\.(?:say|warn)\("([a-z-]+)"|\.ordered\(b, "([a-z-]+)"|\bRule: *"([a-z-]+)"`)

// RulesIn are those that the source of a package names, sorted.
func RulesIn(dir string) (rules []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range ruleNamed.FindAllSubmatch(text, -1) {
			rules = append(rules, string(m[1])+string(m[2])+string(m[3]))
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), nil
}

// Run implements goleak.TestingM.
func (t Tested) Run() int {
	code := t.M.Run()
	if code != 0 || testing.Short() || given("run") || given("skip") || given("list") || given("fuzz") {
		return code
	}
	rules, err := RulesIn(".")
	if err != nil || len(rules) == 0 {
		fmt.Println("FAIL: the rules of this package:", rules, err)
		return 1
	}
	for _, rule := range rules {
		if !slices.Contains(t.Rules.seen, rule) {
			fmt.Printf("FAIL: no test of this package sees a finding of the rule %s\n", rule)
			code = 1
		}
	}
	return code
}

// given reports whether a flag of `go test` has a value.
func given(name string) bool {
	f := flag.Lookup("test." + name)
	return f != nil && f.Value.String() != ""
}
