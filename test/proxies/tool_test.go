package proxies

import "testing"

// outcome records how a helper ends a test.
type outcome struct {
	testing.TB
	fatal, skipped bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Fatalf(string, ...any) { o.fatal = true }
func (o *outcome) Skipf(string, ...any)  { o.skipped = true }

// TestMissing: what a machine lacks skips a test at a desk, and fails it with CI=true.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		ci    string
		fatal bool
	}{{"", false}, {"true", true}} {
		t.Setenv("CI", c.ci)
		o := &outcome{TB: t}
		Tool(o, "no-program-of-that-name")
		if o.fatal != c.fatal || !o.fatal && !o.skipped {
			t.Errorf("CI=%q: fatal %v, skipped %v", c.ci, o.fatal, o.skipped)
		}
	}
}
