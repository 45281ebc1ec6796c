package haproxy

import (
	"os"
	"regexp"
	"testing"
)

// The table of variables lists what an answer sets, and nothing else.
func TestVariablesAreListed(t *testing.T) {
	code, err := os.ReadFile("agent.go")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:set|w\.SetString|w\.SetInt)\("([a-z0-9_]+)"`).FindAllSubmatch(code, -1) {
		set[string(m[1])] = true
	}
	for _, v := range Variables {
		if !set[v.Name] {
			t.Errorf("nothing sets %s", v.Name)
		}
		delete(set, v.Name)
	}
	if len(set) > 0 {
		t.Errorf("not listed: %v", set)
	}
}
