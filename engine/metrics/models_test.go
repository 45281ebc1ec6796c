package metrics

import "testing"

// The list of models says how long a context is; nonsense is ignored.
func TestReadsTheContextLength(t *testing.T) {
	r := newRig(Options{}, &fakeEngine{t: t, page: busy})
	for _, c := range []struct {
		page  string
		want  int
		known bool
	}{
		{`{"data":[{"id":"m","max_model_len":32768},{"id":"a","parent":"m","max_model_len":null}]}`, 32_768, true},
		{`{"data":[{"id":"m","max_model_len":1e300}]}`, 100_000_000, true},
		{`{"data":[{"id":"m","max_model_len":-7}]}`, 500_000, false},
		{`{"data":[{"id":"m"}]}`, 500_000, false},
	} {
		r.scrapers[0].readModels([]byte(c.page))
		if b := r.pool.Bounds(); b.Context != c.want || b.Known != c.known {
			t.Errorf("%s: %+v, want %d", c.page, b, c.want)
		}
	}
}
