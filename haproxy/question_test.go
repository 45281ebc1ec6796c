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

// TestAsksWhenAway: before 3.0, a question that does not depend on the agent being there is warned of.
func TestAsksWhenAway(t *testing.T) {
	const asks = "send-spoe-group pointsman pm-route if METH_POST"
	for _, c := range []struct {
		major, minor int
		condition    string
		want         bool
	}{
		{2, 6, "", true},
		{2, 8, " { req.body_len gt 0 }", true},
		{2, 6, " !{ var(txn.pm.error) -m found }", false},
		{3, 0, "", false},
	} {
		for _, file := range []string{"haproxy.cfg", templates.AttachedFile} {
			text := strings.Replace(attachedSites[2].text, asks, asks+c.condition, 1)
			w := attachedWanted()
			w.Version = templates.Version{Major: c.major, Minor: c.minor}
			found := false
			for _, f := range Advise([]File{{file, []byte(text)}}, w) {
				if f.Rule == "asks-when-away" {
					rules.See(f)
					found = f.Level == advice.Warning && f.Line > 0
				}
			}
			if found != c.want {
				t.Errorf("%s %+v: %v", file, c, found)
			}
		}
	}
}
