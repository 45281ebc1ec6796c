package attach

import "testing"

func TestUnknown(t *testing.T) {
	for want, known := range map[string][]string{
		"no backend x; the configuration has none at all": nil,
		"no backend x; there are: a, b":                   {"a", "b"},
	} {
		if err := Unknown("no backend x", known); err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
