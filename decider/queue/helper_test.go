package queue

import (
	"testing"
	"time"
)

// speed is the prefill speed that the tests assume, in tokens/s.
const speed = 1000

// bench is a queue of strings on a clock that the test moves.
type bench struct {
	*Queue[string]
	t   testing.TB
	now time.Duration
	ids uint64
}

func newBench(t testing.TB, c Config) *bench {
	return &bench{Queue: New[string](NewSettings(c)), t: t}
}

// put adds an item of that work to the first band, unless change says otherwise.
func (b *bench) put(name string, work float64, change ...func(*Entry)) *Item[string] {
	b.ids++
	e := Entry{Prefill: work, Work: work}
	for i := range 8 {
		e.ID[i] = byte(b.ids >> (8 * i))
	}
	for _, f := range change {
		f(&e)
	}
	return b.Add(e, name, b.now, speed)
}

func in(band int) func(*Entry)        { return func(e *Entry) { e.Band = band } }
func of(tenant uint64) func(*Entry)   { return func(e *Entry) { e.Tenant = tenant } }
func by(d time.Duration) func(*Entry) { return func(e *Entry) { e.Deadline = d } }
func ofBytes(n int) func(*Entry)      { return func(e *Entry) { e.Bytes = n } }

// serve serves the item that is first in line, and is its value.
func (b *bench) serve() string {
	it := b.Head()
	v := it.Value
	b.Serve(it)
	b.Recycle(it)
	return v
}

// order serves all items, and is their values in order.
func (b *bench) order() (s string) {
	for b.Len() > 0 {
		s += b.serve()
	}
	return s
}

// check compares the queue's indexes with each other.
func (b *bench) check() {
	b.t.Helper()
	n := 0
	for i := range b.bands {
		band := &b.bands[i]
		items, bytes, work := 0, 0, 0.0
		for k := range b.Tenants(i) {
			t := b.Tenant(i, k)
			items += t.Len()
			for j := range t.Len() {
				bytes += t.Item(j).Bytes
				work += t.Item(j).Work
			}
		}
		if items != band.n || bytes != band.bytes || int(work+.5) != int(band.work+.5) {
			b.t.Fatalf("band %d holds %d items, %d bytes and %g tokens, but counts %d, %d and %g", i, items, bytes, work, band.n, band.bytes, band.work)
		}
		n += items
	}
	if n != b.Len() || n != b.due.len() {
		b.t.Fatalf("%d in bands, %d by id, %d due", n, b.Len(), b.due.len())
	}
}
