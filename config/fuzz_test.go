package config

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add(smallest)
	f.Add("pools: &a {b: *a, <<: *a}\n--- {}\n")
	f.Add("pools: {a: {policy: {name: session, fallbacks: -1}, replicas: [1, 2]}}\nmodels: {x: {split: {a: 0}}, y: 1}")
	f.Add("lease: !!binary 5s\nsession: {headers: x}\nlisten: {spoe: true, feed: ~}\n? [a]\n: b")
	for _, file := range []string{"../packaging/pointsman.yaml", "testdata/refusals.txt"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(data), "\n-- ") {
			f.Add(part)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text), nil, checks)
		var many Errors
		switch {
		case err == nil:
			if c.Warnings(); len(c.Diff(c)) > 0 || len(c.Ordered()) != len(c.Pools) {
				t.Errorf("got %+v", c)
			}
		case !errors.As(err, &many) || len(many) == 0 || c != nil:
			t.Errorf("got %v", err)
		}
		for _, e := range many {
			if strings.Contains(e.Error(), "\n") || e.Msg == "" {
				t.Errorf("refusal %q", e.Error())
			}
		}
	})
}
