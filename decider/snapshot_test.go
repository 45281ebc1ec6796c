package decider

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pointsman/decider/kvcache"
)

// keepSessions is a filter that has the pool remember sessions.
type keepSessions struct{}

func (keepSessions) Name() string                              { return "keep" }
func (keepSessions) Keep(_ *Request, _ *View, dst []int) []int { return dst }
func (keepSessions) UsesSessions() bool                        { return true }

// lives is a pool in two lives: the process restarts between them.
type lives struct {
	*Pool
	clock *testClock
	d     *Decider
}

func newLife(n int, secret string, change ...func(*PoolConfig)) *lives {
	c := PoolConfig{Name: "llama", Models: []string{"m"}, Policy: LeastWork{}, PolicyName: "test", Replicas: replicas(n), Filters: []Filter{keepSessions{}}}
	for _, f := range change {
		f(&c)
	}
	clock := &testClock{}
	d := New(clock.tell, seeds())
	d.Secret = []byte(secret)
	d.Apply(Config{Pools: []PoolConfig{c}})
	return &lives{d.Pools()[0], clock, d}
}

// conversations sends n turns of conversations, of which some still run in the end.
func (l *lives) conversations(n int, r *rand.Rand) (running []ID, prompts map[uint64][]uint64) {
	prompts = map[uint64][]uint64{}
	for turn := range n {
		l.clock.now += time.Duration(r.IntN(200)) * time.Millisecond
		s := uint64(r.IntN(n / 4))
		for range 1 + r.IntN(8) {
			prompts[s] = append(prompts[s], scramble(s<<32+uint64(len(prompts[s]))))
		}
		q := Request{
			ID: newID(), Pool: l.Pool, Model: "m", Session: scramble(s), HasSession: true, Stream: turn%3 > 0,
			Blocks: prompts[s], Input: len(prompts[s])*DefaultBlockTokens + 7, Output: turn % 100, TextBytes: 1000 * turn,
		}
		if turn%17 == 0 {
			q.LoRA, q.Model = "french", "french"
		}
		var d Decision
		l.Decide(&q, &d)
		server := []byte(d.Server)
		if turn%5 != 0 {
			l.clock.now += time.Duration(r.IntN(900)) * time.Millisecond
			l.FirstToken(q.ID, server)
		}
		if turn < n-40 || turn%2 == 0 {
			l.Finished(Outcome{ID: q.ID, Server: server, Status: 200, TTFT: time.Second})
		} else {
			running = append(running, q.ID)
		}
	}
	return running, prompts
}

func (l *lives) snapshot(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.State().Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What a pool knows and holds is the same after a restart.
func TestRestoredPoolIsTheSame(t *testing.T) {
	a := newLife(5, "secret")
	r := rand.New(rand.NewPCG(3, 4))
	running, prompts := a.conversations(400, r)
	text := a.snapshot(t)

	b := newLife(5, "secret")
	b.clock.now = 3 * time.Second // another process has another clock
	got, err := b.State().Restore(bytes.NewReader(text), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, restored %+v", len(text), got)
	if got.Replicas != 5 || got.Reservations != len(running) || got.Blocks == 0 || got.Sessions == 0 {
		t.Fatalf("restored %+v of 5 replicas and %d reservations", got, len(running))
	}
	x, y := a.Status(), b.Status()
	for i := range x.Replicas {
		p, q := x.Replicas[i], y.Replicas[i]
		if p.InFlight != q.InFlight || p.Waiting != q.Waiting || p.Tokens != q.Tokens || p.CacheTokens != q.CacheTokens || p.PrefillSpeed != q.PrefillSpeed {
			t.Errorf("before %+v\nafter  %+v", p, q)
		}
		if was, is := a.replicas[i].computed, b.replicas[i].computed; is < .8*was || is > 1.2*was {
			t.Errorf("%s had computed %v tokens, after the restart %v", p.Name, was, is)
		}
	}
	if was, is := a.load.demand.arrivals(a.clock.now), b.load.demand.arrivals(b.clock.now); is < .7*was || is > 1.4*was {
		t.Errorf("%v requests/s arrived, after the restart %v", was, is)
	}
	var before, after []int32
	for s, blocks := range prompts {
		before, _ = a.caches.model.Match(blocks, before)
		if after, _ = b.caches.model.Match(blocks, after); !slices.Equal(before, after) {
			t.Fatalf("a conversation is cached as %v, after the restart as %v", before, after)
		}
		q := Request{Session: scramble(s), HasSession: true}
		if was, is := a.account.sessions.last(&q), b.account.sessions.last(&q); was.name != is.name {
			t.Errorf("a session went to %s, after the restart to %s", was.name, is.name)
		}
		at, bt := kvcache.Milliseconds(a.clock.now), kvcache.Milliseconds(b.clock.now)
		if was, is := a.caches.model.RequestRate(blocks[0], at), b.caches.model.RequestRate(blocks[0], bt); was >= leastRate && (is < .9*was || is > 1.1*was) {
			t.Errorf("a block was requested at %v, after the restart at %v", was, is)
		}
	}
	// It continues in the same way: the running requests end, and nothing is left over.
	for i, id := range running {
		for _, l := range []*lives{a, b} {
			v := l.find(id)
			l.FirstToken(id, []byte(v.replica.name))
			if i%2 == 0 {
				l.Finished(Outcome{ID: id, Server: []byte(v.replica.name), Status: 200, TTFT: time.Second})
			}
		}
	}
	for i, p := range a.replicas {
		q := b.replicas[i]
		if p.inFlight != q.inFlight || p.cache.Len() != q.cache.Len() || p.cache.InUse() != q.cache.InUse() {
			t.Errorf("%s: %d in flight and %d blocks, %d in use; after the restart %d, %d and %d", p.name,
				p.inFlight, p.cache.Len(), p.cache.InUse(), q.inFlight, q.cache.Len(), q.cache.InUse())
		}
	}
	b.clock.now += DefaultLease
	b.d.Sweep()
	for _, q := range b.replicas {
		if q.inFlight != 0 || q.waiting != 0 || q.tokens != 0 || q.prefill.n != 0 || q.cache.InUse() != 0 {
			t.Errorf("%s has %d in flight, %d waiting and %d blocks in use when all has ended", q.name, q.inFlight, q.waiting, q.cache.InUse())
		}
	}
}

// A cache is evicted in the same order before and after.
func TestRestoredCacheEvictsInOrder(t *testing.T) {
	small := func(c *PoolConfig) { c.CacheTokens = 300 * DefaultBlockTokens }
	a := newLife(2, "s", small)
	a.conversations(300, rand.New(rand.NewPCG(5, 6)))
	for v := a.oldest(); v != nil; v = a.oldest() { // else what is in use has no order
		a.Finished(Outcome{ID: v.id, Server: []byte(v.replica.name), Status: 200, TTFT: time.Second})
	}
	b := newLife(2, "s", small)
	if _, err := b.State().Restore(bytes.NewReader(a.snapshot(t)), "", 0); err != nil {
		t.Fatal(err)
	}
	for i := range a.replicas {
		var m kvcache.Image
		m.Copy(a.replicas[i].cache)
		was := m.AppendKeys(nil)
		m.Copy(b.replicas[i].cache)
		if is := m.AppendKeys(nil); !slices.Equal(was, is) || len(is) == 0 {
			t.Errorf("%d blocks in one order, %d in another", len(was), len(is))
		}
	}
}

// Restoring into a pool that has state already adds the rest and changes nothing else, as
// when an agent joins and messages of others have already come.
func TestRestoreTwice(t *testing.T) {
	a := newLife(3, "s")
	running, _ := a.conversations(200, rand.New(rand.NewPCG(7, 8)))
	text := a.snapshot(t)
	b := newLife(3, "s")
	b.Finished(Outcome{ID: running[0], Server: []byte("r0"), Status: 200}) // its end came first
	if _, err := b.State().Restore(bytes.NewReader(text), "other", 0); err != nil {
		t.Fatal(err)
	}
	before := b.Status()
	if n := before.Reservations; n != len(running)-1 {
		t.Fatalf("%d reservations restored, want %d without the one that ended", n, len(running)-1)
	}
	if again, err := b.State().Restore(bytes.NewReader(text), "other", 0); err != nil || again.Blocks != 0 || again.Sessions != 0 || again.Reservations > 1 {
		t.Errorf("the second time restored %+v, error %v", again, err)
	}
	var own bytes.Buffer
	if err := b.State().Snapshot(&own); err != nil {
		t.Fatal(err)
	}
	c := newLife(3, "s")
	if got, err := c.State().Restore(&own, "", 0); err != nil || got.Reservations != 0 {
		t.Errorf("an agent writes reservations of others: restored %+v, error %v", got, err)
	}
}

// Reservations of an earlier life end within a minute if nothing is reported on them.
func TestRestoredReservationsEnd(t *testing.T) {
	a := newLife(2, "s")
	running, _ := a.conversations(80, rand.New(rand.NewPCG(9, 1)))
	b := newLife(2, "s")
	b.clock.now = time.Hour
	if _, err := b.State().Restore(bytes.NewReader(a.snapshot(t)), "", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	b.clock.now += time.Second
	b.Connected(running[0], []byte("r0"))
	b.clock.now += restoredLease
	b.d.Sweep()
	if n := b.Status().Reservations; n != 1 {
		t.Errorf("%d reservations a minute after the restart, want the one that was reported", n)
	}
}

// What does not fit is left out: keys of another seed or block size, replicas that
// are others now.
func TestRestoreLeavesOutWhatDoesNotFit(t *testing.T) {
	a := newLife(3, "s")
	running, _ := a.conversations(200, rand.New(rand.NewPCG(2, 2)))
	text := a.snapshot(t)
	for name, b := range map[string]*lives{
		"other seed":   newLife(3, "t"),
		"other blocks": newLife(3, "s", func(c *PoolConfig) { c.BlockTokens = 17 }),
	} {
		if got, err := b.State().Restore(bytes.NewReader(text), "", 0); err != nil || got.Blocks != 0 || got.Reservations != len(running) {
			t.Errorf("%s: restored %+v, error %v; want %d reservations and no blocks", name, got, err, len(running))
		}
	}
	moved := newLife(3, "s", func(c *PoolConfig) {
		c.Replicas[0].Address, c.Replicas[1].Name = "127.0.0.9:1", "renamed"
	})
	if got, err := moved.State().Restore(bytes.NewReader(text), "", 0); err != nil || got.Replicas != 2 || got.Blocks == 0 {
		t.Errorf("restored %+v, error %v; want all but the replica whose address changed", got, err)
	}
	if moved.byName["renamed"].cache.Len() == 0 || moved.byName["r0"].cache.Len() != 0 {
		t.Error("a replica is not found by its address, or is found by its name alone")
	}
}

// A snapshot that was cut or changed is an error, and leaves a pool that works.
func TestRestoreDamaged(t *testing.T) {
	a := newLife(3, "s")
	a.conversations(60, rand.New(rand.NewPCG(1, 9)))
	text := a.snapshot(t)
	for n := 0; n < len(text); n += 1 + len(text)/150 {
		b := newLife(3, "s")
		if _, err := b.State().Restore(bytes.NewReader(text[:n]), "", 0); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("cut at %d of %d bytes: error %v", n, len(text), err)
		}
		b.check(t)
	}
}

// check fails unless the pool's sums are those of its reservations.
func (l *lives) check(t testing.TB) {
	t.Helper()
	type sums struct{ inFlight, tokens, input int }
	want := map[*Replica]sums{}
	list := &l.account.reservations
	n := 0
	for i := list.slots[0].next; i != 0; i = list.at(i).next {
		v := list.at(i)
		s := want[v.replica]
		want[v.replica] = sums{s.inFlight + 1, s.tokens + v.tokens, s.input + v.input}
		if n++; v.next != 0 && list.at(v.next).lease < v.lease {
			t.Fatal("leases are out of order")
		}
	}
	if n != l.account.len() {
		t.Fatalf("%d reservations in the list, %d in all", n, l.account.len())
	}
	for _, r := range l.replicas {
		if got := (sums{r.inFlight, r.tokens, r.input}); got != want[r] {
			t.Fatalf("%s counts %+v, its reservations are %+v", r.name, got, want[r])
		}
		if c := r.cache; c != nil && c.Len() > c.Capacity() && c.InUse() < c.Len() {
			t.Fatalf("%s: %d blocks in a cache of %d", r.name, c.Len(), c.Capacity())
		}
	}
	l.clock.now += 2 * DefaultLease
	l.d.Sweep()
	for _, r := range l.replicas {
		if r.inFlight != 0 || r.waiting != 0 || r.tokens != 0 || r.prefill.n != 0 {
			t.Fatalf("%s keeps %d requests after all leases", r.name, r.inFlight)
		}
	}
	tally(l.Pool, 3, true)
}

func FuzzRestore(f *testing.F) {
	a := newLife(2, "s")
	a.conversations(50, rand.New(rand.NewPCG(4, 4)))
	f.Add(a.snapshot(f))
	f.Add(newLife(0, "s").snapshot(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := newLife(2, "s")
		b.conversations(8, rand.New(rand.NewPCG(5, 5)))
		b.State().Restore(bytes.NewReader(text), "x", time.Second)
		b.check(t)
	})
}

// large is a pool of 64 replicas whose caches of 500,000 tokens are full of
// prompts that no two replicas share, 128 requests running on each.
func large(blockTokens int) *lives {
	l := newLife(64, "s", func(c *PoolConfig) { c.BlockTokens = blockTokens })
	chance := rand.New(rand.NewPCG(1, 2))
	each := DefaultCacheTokens / blockTokens
	prompt := 4000 / blockTokens
	for i, r := range l.replicas {
		for k := 0; k < each+prompt*8; k += prompt {
			q := Request{ID: newID(), Pool: l.Pool, Model: "some-model", Session: chance.Uint64(), HasSession: true, Stream: true, Input: 4000, Output: 200}
			for range prompt {
				q.Blocks = append(q.Blocks, chance.Uint64())
			}
			v := l.account.reserve(&q, r, nil, l.clock.now)
			l.account.start(v, 0, l.clock.now)
			if k < each+prompt*8-prompt*128 && i >= 0 {
				l.account.end(v, Outcome{}, l.clock.now)
			}
		}
	}
	return l
}

// The longest step of a snapshot with the pool locked: a copy of one cache.
func BenchmarkSnapshotLocked(b *testing.B) {
	for _, blockTokens := range []int{DefaultBlockTokens, 16} {
		l := large(blockTokens)
		b.Run(fmt.Sprintf("500k/block=%d", blockTokens), func(b *testing.B) {
			var image kvcache.Image
			for i := 0; b.Loop(); i++ {
				image.Copy(l.replicas[i%len(l.replicas)].cache)
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, blockTokens := range []int{DefaultBlockTokens, 16} {
		l := large(blockTokens)
		b.Run(fmt.Sprintf("64x500k/block=%d", blockTokens), func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = len(l.snapshot(b))
			}
			b.ReportMetric(float64(n)/1e6, "MB")
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	for _, blockTokens := range []int{DefaultBlockTokens, 16} {
		text := large(blockTokens).snapshot(b)
		b.Run(fmt.Sprintf("64x500k/block=%d", blockTokens), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l := newLife(64, "s", func(c *PoolConfig) { c.BlockTokens = blockTokens })
				b.StartTimer()
				if _, err := l.State().Restore(bytes.NewReader(text), "", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
