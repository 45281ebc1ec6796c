package haproxy

import (
	"strings"
	"testing"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// TestBodyTimers: before 3.0, a wait for the body that ends before a hold is a fault.
func TestBodyTimers(t *testing.T) {
	for _, c := range []struct {
		version  templates.Version
		wait     string
		decision time.Duration
		want     bool
	}{
		{templates.Version{Major: 2, Minor: 6}, "30s", 301 * time.Second, true},
		{templates.Version{Major: 2, Minor: 8}, "30s", 31 * time.Second, true},
		{templates.Version{Major: 2, Minor: 6}, "331s", 301 * time.Second, false},
		{templates.Version{Major: 2, Minor: 6}, "30s", 50 * time.Millisecond, false},
		{templates.Version{Major: 3, Minor: 0}, "30s", 301 * time.Second, false},
	} {
		text := strings.Replace(attachedSites[2].text, "wait-for-body time 30s", "wait-for-body time "+c.wait, 1)
		w := attachedWanted()
		w.Version, w.Decision = c.version, c.decision
		found := false
		for _, f := range Advise([]File{{"haproxy.cfg", []byte(text)}}, w) {
			if f.Rule == "body-timeout" {
				rules.See(f)
				found = f.Level == advice.Fault && strings.Contains(f.Problem, "longer than the 30s of this wait-for-body, and a hold may take")
			}
		}
		if found != c.want {
			t.Errorf("%+v: %v", c, found)
		}
	}
}
