package house

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pointsman/test/inject"
)

var quotedRule = regexp.MustCompile("`([a-z-]+)`")

// Each rule that check names findings by has a row in the table of its package, and the
// tables have no others.
func TestRulesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	section := ""
	for line := range strings.Lines(string(page)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(title, ":")
		}
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range quotedRule.FindAllStringSubmatch(cells[1], -1) {
			documented[section] = append(documented[section], m[1])
		}
	}
	for title, dirs := range map[string][]string{"HAProxy": {"../../haproxy", "../../check"}, "nginx": {"../../nginx"}} {
		var rules []string
		for _, dir := range dirs {
			list, err := inject.RulesIn(dir)
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			rules = append(rules, list...)
		}
		for _, rule := range rules {
			if !slices.Contains(documented[title], rule) {
				t.Errorf("docs/check.md has no row for %s of %s", rule, title)
			}
		}
		for _, rule := range documented[title] {
			if !slices.Contains(rules, rule) {
				t.Errorf("docs/check.md has %s for %s, which is no rule", rule, title)
			}
		}
	}
}
