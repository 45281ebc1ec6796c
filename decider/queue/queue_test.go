package queue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Strict bands come in their order, those with weights share the work, and
// within a band the order is the configured one.
func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		bands []Band
		put   func(*bench)
		want  string
	}{
		"strict bands": {[]Band{{Name: "a"}, {Name: "b"}}, func(b *bench) {
			b.put("3", 1, in(1))
			b.put("1", 1)
			b.put("4", 1, in(1))
			b.put("2", 1)
		}, "1234"},
		"arrival": {[]Band{{Name: "a"}}, func(b *bench) {
			b.put("1", 9)
			b.now += time.Second
			b.put("2", 1)
		}, "12"},
		"deadline": {[]Band{{Name: "a", Order: ByDeadline}}, func(b *bench) {
			b.put("3", 1)
			b.put("2", 1, by(9*time.Second))
			b.put("1", 1, by(8*time.Second))
		}, "123"},
		"work": {[]Band{{Name: "a", Order: ByWork}}, func(b *bench) {
			b.put("3", 900)
			b.put("1", 100)
			b.put("2", 500)
		}, "123"},
		"weights": {[]Band{{Name: "a", Weight: 2}, {Name: "b", Weight: 1}}, func(b *bench) {
			for range 4 {
				b.put("a", 100)
				b.put("b", 100, in(1))
			}
		}, "abaabab" + "b"},
		"a strict band before weights": {[]Band{{Name: "w", Weight: 1}, {Name: "s"}}, func(b *bench) {
			b.put("w", 1)
			b.put("s", 1, in(1))
		}, "sw"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Bands: c.bands})
			c.put(b)
			b.check()
			if got := b.order(); got != c.want {
				t.Errorf("served %s, want %s", got, c.want)
			}
			b.check()
		})
	}
}

// In the order ByWork, waiting makes up for length.
func TestWorkAges(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a", Order: ByWork}}})
	b.put("long", 2000)
	n := 0
	for ; n < 100; n++ {
		b.now += time.Second
		b.put("short", 100)
		if b.serve() == "long" {
			break
		}
	}
	// 1900 tokens more make up for 19 s at a tenth of 1000 tokens/s.
	if n < 18 || n > 20 {
		t.Errorf("the long item is served after %d s, want 19", n)
	}
	it := b.put("x", 1)
	if got := it.Aged(500, speed, b.now+2*time.Second); got != 300 {
		t.Errorf("500 tokens are %g after 2 s, want 300", got)
	}
}

// Tenants that always wait share the work by their weights, whatever the sizes
// of their requests and however many they send.
func TestFairShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weight := rapid.IntRange(1, 4).Draw(rt, "weight")
		sizes := rapid.SliceOfN(rapid.IntRange(100, 5000), 3, 3).Draw(rt, "sizes")
		b := newBench(t, Config{Bands: []Band{{Name: "a"}}, Shares: []Share{{Name: "t0", Tenant: 1, Weight: weight}}})
		put := func(k, n int) {
			for range n {
				b.put(fmt.Sprint(k), float64(sizes[k]), of(uint64(k+1)))
			}
		}
		put(0, 100) // one has far more waiting than the others
		put(1, 5)
		put(2, 5)
		work, total := [3]int{}, 0
		for total < 60*max(sizes[1], sizes[2]) {
			k := int(b.serve()[0] - '0')
			work[k] += sizes[k]
			total += sizes[k]
			put(k, 1)
		}
		for k := range 3 {
			share := 1.0
			if k == 0 {
				share = float64(weight)
			}
			want := float64(total) * share / float64(weight+2)
			if math.Abs(float64(work[k])-want) > 3*float64(slices.Max(sizes)) {
				rt.Fatalf("tenant %d had %d of %d tokens, want %.0f; sizes %v, weight %d", k, work[k], total, want, sizes, weight)
			}
		}
	})
}

// A tenant that was away starts where the others are: it has no credit.
func TestAbsenceGivesNoCredit(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a"}}})
	for range 20 {
		b.put("1", 100, of(1))
	}
	for range 10 {
		b.serve()
	}
	for range 10 {
		b.put("2", 100, of(2))
	}
	if got := b.order(); got[:6] != "121212" && got[:6] != "212121" {
		t.Errorf("served %s, want them in turn", got)
	}
}

// Tenants without items are forgotten, unless they had more than the others,
// and even those are bounded.
func TestTenantsAreForgotten(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a"}}})
	for i := range uint64(3 * tenantsKept) {
		b.put("x", 100, of(i))
		b.serve()
	}
	if n := len(b.bands[0].tenants); n > tenantsKept {
		t.Errorf("%d tenants are remembered", n)
	}
}

func TestLimits(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a", MaxRequests: 2}, {Name: "b", MaxBytes: 100}}})
	b.put("1", 1)
	b.put("2", 1)
	if b.Full(0) {
		t.Error("2 of 2 items are beyond the limit")
	}
	b.put("3", 1)
	if !b.Full(0) {
		t.Error("3 of 2 items are within the limit")
	}
	b.put("4", 1, in(1), ofBytes(100))
	if b.Full(1) {
		t.Error("100 of 100 bytes are beyond the limit")
	}
	b.put("5", 1, in(1), ofBytes(1))
	if !b.Full(1) {
		t.Error("101 of 100 bytes are within the limit")
	}
	if b.Band(0).TTL != DefaultTTL || b.Band(1).MaxRequests != DefaultMaxRequests || b.Band(7).Name != "b" {
		t.Errorf("bands %+v and %+v", b.Band(0), b.Band(1))
	}
}

// An item is due when its band's TTL has passed, or when its deadline cannot be
// met any more.
func TestDue(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a", TTL: 10 * time.Second}}})
	b.now = time.Second
	b.put("waits", 1)
	b.put("late", 2000, by(7*time.Second)) // 2 s of work: due at 5 s
	b.put("in time", 1, by(time.Hour))     // due with its TTL
	if it := b.Overdue(4 * time.Second); it != nil {
		t.Errorf("%s is due at 4 s", it.Value)
	}
	it := b.Overdue(5 * time.Second)
	if it == nil || it.Value != "late" || !it.Late() || it.Due() != 5 {
		t.Fatalf("due at 5 s: %+v", it)
	}
	b.Remove(it)
	if it := b.Overdue(10 * time.Second); it != nil {
		t.Errorf("%s is due at 10 s", it.Value)
	}
	for _, want := range []string{"waits", "in time"} {
		it := b.Overdue(11 * time.Second)
		if it == nil || it.Value != want || it.Late() || it.At != time.Second {
			t.Fatalf("due at 11 s: %+v, want %s", it, want)
		}
		b.Remove(it)
	}
	if b.First() != nil {
		t.Error("an empty queue has a first item")
	}
}

// An item that is postponed waits for longer, in another queue too, and keeps its place.
func TestPostpone(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a", TTL: 10 * time.Second}}})
	first := b.put("1", 1)
	b.now = time.Second
	b.put("2", 1)
	b.Postpone(first, 3*time.Second)
	next := newBench(t, Config{Bands: []Band{{Name: "a", TTL: 20 * time.Second}}})
	next.Adopt(b.Queue, speed, func(*Item[string]) {})
	next.check()
	if due := next.First(); due.Value != "2" || due.Due() != 21 || first.Due() != 23 {
		t.Errorf("%s is due at %g s, the postponed one at %g s", due.Value, due.Due(), first.Due())
	}
	if got := next.order(); got != "12" {
		t.Errorf("served %s", got)
	}
}

func TestWorkAhead(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a"}, {Name: "b"}, {Name: "v", Weight: 1}, {Name: "w", Weight: 1}}})
	for i, work := range []float64{1, 10, 100, 1000} {
		b.put("x", work, in(i))
	}
	for i, want := range []float64{1, 11, 1111, 1111} {
		if got := b.WorkAhead(i); got != want {
			t.Errorf("%g before band %d, want %g", got, i, want)
		}
		if got := b.Ahead(i); got != i+1 {
			t.Errorf("%d items up to band %d, want %d", got, i, i+1)
		}
	}
}

// A queue that takes over another one's items keeps their ages and their bands
// by name.
func TestAdopt(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a"}, {Name: "b"}, {Name: "gone"}}})
	b.put("a", 1)
	b.put("b", 1, in(1))
	b.put("g", 1, in(2))
	next := newBench(t, Config{Bands: []Band{{Name: "b"}, {Name: "a", TTL: time.Second}}})
	moved := map[string]int{}
	next.Adopt(b.Queue, speed, func(it *Item[string]) { moved[it.Value] = it.Band })
	next.check()
	b.check()
	if b.Len() != 0 || next.Len() != 3 || moved["a"] != 1 || moved["b"] != 0 || moved["g"] != 1 {
		t.Errorf("%d items stay, %d are moved, to %v", b.Len(), next.Len(), moved)
	}
	if it := next.First(); it.Value != "a" || it.Due() != 1 {
		t.Errorf("due first: %+v", it)
	}
	if got := next.order(); got != "bag" {
		t.Errorf("served %s", got)
	}
}

// Whatever is added, served, removed and recycled, the indexes agree, and each
// item comes out once.
func TestQueueIsConsistent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		config := Config{Bands: []Band{
			{Name: "a", Order: Order(rapid.IntRange(0, int(Orders)-1).Draw(rt, "order"))}, {Name: "b", Weight: 2}, {Name: "c", Weight: 1},
		}}
		b := newBench(t, config)
		in, out := 0, 0
		for range rapid.IntRange(0, 200).Draw(rt, "steps") {
			switch op := rapid.IntRange(0, 4).Draw(rt, "op"); {
			case op < 2:
				in++
				b.put("x", float64(rapid.IntRange(0, 5000).Draw(rt, "work")), func(e *Entry) {
					e.Band = rapid.IntRange(0, 2).Draw(rt, "band")
					e.Tenant = uint64(rapid.IntRange(0, 3).Draw(rt, "tenant"))
					e.Bytes = rapid.IntRange(0, 99).Draw(rt, "bytes")
				})
			case op == 2 && b.Len() > 0:
				b.serve()
				out++
			case op == 3 && b.Len() > 0:
				it := b.First()
				b.Remove(it)
				b.Recycle(it)
				out++
			case op == 4:
				b.now += time.Duration(rapid.IntRange(0, 1000).Draw(rt, "ms")) * time.Millisecond
			}
			b.check()
			if b.Len() != in-out {
				rt.Fatalf("%d items, want %d", b.Len(), in-out)
			}
			if n := len(b.Turns()); (n > 0) != (b.Len() > 0) {
				rt.Fatalf("%d bands have turns for %d items", n, b.Len())
			}
		}
	})
}

// Adding and serving allocate nothing once the queue has grown.
func TestQueueDoesNotAllocate(t *testing.T) {
	b := newBench(t, Config{Bands: []Band{{Name: "a", Order: ByWork}, {Name: "b"}}})
	k := 0
	step := func() {
		k++
		e := Entry{Band: k % 2, Tenant: uint64(k % 5), Prefill: float64(k % 7), Work: float64(k % 7)}
		e.ID[0], e.ID[1], e.ID[2] = byte(k), byte(k>>8), byte(k>>16)
		b.Add(e, "x", time.Duration(k), speed)
		if b.Len() > 100 {
			it := b.Head()
			b.Serve(it)
			b.Recycle(it)
		}
	}
	for range 2000 {
		step()
	}
	if a := testing.AllocsPerRun(2000, step); a > 0.1 {
		t.Errorf("%v allocations an item", a)
	}
}
