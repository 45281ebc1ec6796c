package metrics

import (
	"slices"
	"testing"
)

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

// FuzzModels: whatever an engine lists as its models, the context stays within bounds
// and the names of adapters are short.
func FuzzModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","max_model_len":32768},{"id":"a","parent":"m","max_model_len":null}]}`))
	f.Add([]byte(`{"data":[{"id":"m","max_model_len":-1e308},{"id":"\ud800","parent":""}]}`))
	f.Add([]byte(`{"data":[[[[`))
	r := newRig(Options{}, &fakeEngine{page: busy})
	s := r.scrapers[0]
	var names []string
	s.events.Adapters = func(list []string) { names = list }
	f.Fuzz(func(t *testing.T, page []byte) {
		names = nil
		s.readModels(page)
		if c := r.pool.Bounds().Context; c < 1 || c > 1e9 {
			t.Fatalf("a context of %d tokens", c)
		}
		for _, n := range names {
			if n == "" || len(n) > maxAdapterName {
				t.Fatalf("an adapter %q", n)
			}
		}
	})
}

// Adapters are known by the names that requests have for them.
func TestAdapterNames(t *testing.T) {
	var r Reading
	r.Read([]byte(`vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql, a\"b\",c\\nd",waiting_lora_adapters=""} 1` + "\n"))
	if got, want := adapterNames(string(r.Adapters)), []string{"sql", `a"b"`, `c\nd`}; !slices.Equal(got, want) {
		t.Errorf("got %q, not %q", got, want)
	}
}
