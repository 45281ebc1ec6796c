package decider

import "testing"

// The bounds are those of the configuration, else of the engines, else of the
// caches.
func TestBounds(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2, func(c *PoolConfig) { c.CacheTokens = 200_000; c.Replicas[1].CacheTokens = 300_000 })
	want := func(why string, b Bounds) {
		t.Helper()
		if got := p.Bounds(); got != b {
			t.Errorf("%s: %+v, want %+v", why, got, b)
		}
	}
	want("nothing is known", Bounds{Context: 300_000, Cache: 300_000})
	p.Engine("r0").ContextTokens(8192)
	p.Engine("r1").ContextTokens(1 << 62)
	want("an engine exaggerates", Bounds{Context: mostContext, Known: true, Cache: 300_000})
	p.Engine("r1").ContextTokens(-5)
	p.Engine("none").ContextTokens(9000)
	want("one engine says it", Bounds{Context: 8192, Known: true, Cache: 300_000})
	p.Engine("r1").Signals(Signals{CacheTokens: 100_000})
	want("an engine reports its cache", Bounds{Context: 8192, Known: true, Cache: 200_000})
	c := p.config
	c.ContextTokens = 4096
	p.configure(c)
	want("it is configured", Bounds{Context: 4096, Known: true, Cache: 200_000})
}

// Of a claimed output counts what an engine would answer.
func TestBoundsOfOutput(t *testing.T) {
	known := Bounds{Context: 8192, Known: true, Cache: 100_000}
	unknown := Bounds{Context: 500_000, Cache: 500_000}
	for _, c := range []struct {
		b              Bounds
		each, n, input int
		want           int
	}{
		{known, -1, 1, 100, -1},
		{known, 500, 2, 100, 1000},
		{known, 8192, 1, 8000, 192},
		{known, 8192, 1, 9000, 1},
		{known, 2_000_000_000, 1, 100, -1},
		{known, 8000, 16384, 100, 100_000},
		{unknown, 4096, 1, 100, 4096},
		{unknown, 2_000_000_000, 1, 100, -1},
		{unknown, 400_000, 1, 100, -1},
	} {
		if got := c.b.Output(c.each, c.n, c.input); got != c.want {
			t.Errorf("%d answers of %d tokens after %d in %+v: %d, want %d", c.n, c.each, c.input, c.b, got, c.want)
		}
	}
}
