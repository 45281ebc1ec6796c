package templates

import "testing"

func TestParseVersion(t *testing.T) {
	for in, want := range map[string]Version{
		"3.2":              {3, 2},
		"2.6.12-1+deb12u4": {2, 6},
		" 3.0.11\n":        {3, 0},
		"2.6-dev3":         {2, 6},
		"HAProxy version 3.2.26-1 2026/10/14 - https://haproxy.org/\nStatus: long-term": {3, 2},
		"HA-Proxy version 2.2.9-2+deb11u6 2023/12/14":                                   {2, 2},
	} {
		if got, err := ParseVersion(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "three", "3", "3.", "nginx version: nginx/1.26", "9999.1", "3.2222"} {
		if got, err := ParseVersion(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
	if v := (Version{3, 2}); !v.AtLeast(3, 2) || !v.AtLeast(2, 9) || v.AtLeast(3, 3) || v.AtLeast(4, 0) {
		t.Error("AtLeast")
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"3.2", "HAProxy version 2.6.12-1", "", "3.99999999999999999999", "-1.-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if again, err2 := ParseVersion(v.String()); err == nil && (err2 != nil || again != v) {
			t.Errorf("%q gives %v, which gives %v, %v", s, v, again, err2)
		}
	})
}
