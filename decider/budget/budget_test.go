package budget

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bench is a ledger whose clock a test sets.
type bench struct {
	*Ledger
	now time.Duration
	t   testing.TB
}

func newBench(t testing.TB, c Config) *bench {
	b := &bench{t: t}
	b.Ledger = New(func() time.Duration { return b.now }, []byte("secret"))
	b.Apply(c)
	return b
}

// charge charges a request of a key for a model.
func (b *bench) charge(key, model string, tokens int) (Charge, Verdict) {
	return b.Charge(b.Identify([]byte(key)), model, tokens, false)
}

// passes reports whether a request is charged.
func (b *bench) passes(key string, tokens int) bool {
	_, v := b.charge(key, "m", tokens)
	return !v.Refused
}

func keyOf(name, key, tenant string) Key {
	return Key{Name: name, Sum: sha256.Sum256([]byte(key)), Tenant: tenant}
}

func perKey(minute, day int64) Config {
	return Config{Limits: []Limit{{Name: "a-key", By: ByKey, PerMinute: minute, PerDay: day}}}
}

// TestWindowsSlide compares the ledger with a list of all usage: nobody uses more prompt
// tokens than the limit within any minute or day, and a refused request would have exceeded
// it within a window and one step.
func TestWindowsSlide(t *testing.T) {
	for w, limit := range map[Window]Config{Minute: perKey(1000, 0), Day: perKey(0, 1000)} {
		b := newBench(t, limit)
		r := rand.New(rand.NewPCG(1, uint64(w)))
		type use struct {
			at     time.Duration
			tokens int
		}
		var uses []use
		sum := func(span time.Duration) (n int) {
			for _, u := range uses {
				if u.at > b.now-span {
					n += u.tokens
				}
			}
			return n
		}
		for range 4000 {
			b.now += time.Duration(r.Int64N(int64(w.span() / 20)))
			tokens := 1 + r.IntN(300)
			if b.passes("k", tokens) {
				uses = append(uses, use{b.now, tokens})
				if n := sum(w.span()); n > 1000 {
					t.Fatalf("%s: %d tokens within one", w, n)
				}
			} else if n := sum(w.span() + w.step()); n+tokens <= 1000 {
				t.Fatalf("%s: refused %d tokens beside %d", w, tokens, n)
			}
		}
	}
}

// What the headers say is true: after the wait the request passes, and not much
// earlier; after the reset all is left.
func TestWaits(t *testing.T) {
	b := newBench(t, perKey(1000, 0))
	b.passes("k", 400)
	b.now += 20 * time.Second
	b.passes("k", 500)
	b.now += 10 * time.Second
	_, v := b.charge("k", "m", 300)
	if !v.Refused || v.Tokens != 1000 || v.Remaining != 100 || v.Limit != "a-key" || v.Window != "minute" {
		t.Fatalf("%+v", v)
	}
	if v.Retry < 30 || v.Retry > 34 || v.Reset < 50 || v.Reset > 54 {
		t.Errorf("retry after %d s, reset in %f s; want some 31 and 51", v.Retry, v.Reset)
	}
	if !strings.Contains(v.Reason, "1000 tokens per minute") {
		t.Error(v.Reason)
	}
	b.now += time.Duration(v.Retry) * time.Second
	if _, v = b.charge("k", "m", 300); v.Refused || v.Remaining != 200 {
		t.Errorf("after the wait: %+v", v)
	}
	b.now += time.Duration(v.Reset * float64(time.Second))
	if v = b.Look(b.Identify([]byte("k")), "m", 0); v.Remaining != 1000 {
		t.Errorf("after the reset: %+v", v)
	}
	if _, v = b.charge("k", "m", 1001); !v.Refused || v.Retry != 60 || !strings.Contains(v.Reason, "alone") {
		t.Errorf("more than the limit: %+v", v)
	}
}

// Output counts when it is known, and requests that cost nothing are refunded, also after
// the window has slid on.
func TestSettle(t *testing.T) {
	b := newBench(t, perKey(1000, 0))
	ch, _ := b.charge("k", "m", 600)
	kept := ch
	b.Settle(&ch, 300, false)
	if b.passes("k", 200) || !b.passes("k", 100) {
		t.Error("600 + 300 of 1000 are used")
	}
	if ch.Made() {
		t.Error("a charge can be settled twice")
	}
	b.Settle(&Charge{}, 5000, false)

	b = newBench(t, perKey(1000, 0))
	ch, _ = b.charge("k", "m", 900)
	b.now += 10 * time.Second
	b.Settle(&ch, -1, true)
	if !b.passes("k", 1000) {
		t.Error("what cost nothing was not given back")
	}
	ch, _ = b.Charge(b.Identify([]byte("k")), "m", 50, true)
	b.now += 2 * time.Minute
	b.passes("k", 1000)
	b.Settle(&ch, -1, true)
	if b.passes("k", 1) {
		t.Error("what had left the window was given back")
	}
	u := b.Usage()[0]
	if u.Free != 2 || u.Requests != 2 || u.Input != 2000 || u.Key != Others {
		t.Errorf("%+v", u)
	}
	_ = kept
}

// Names, tenants and models are counted apart, by the first limit that fits.
func TestLimits(t *testing.T) {
	b := newBench(t, Config{
		Keys: []Key{keyOf("alice", "key-a", "research"), keyOf("bob", "key-b", "research"), keyOf("carol", "key-c", "")},
		Limits: []Limit{
			{Name: "alice", By: ByKey, Keys: []string{"alice"}, PerMinute: 5000},
			{Name: "a-key", By: ByKey, PerMinute: 1000},
			{Name: "a-team", By: ByTenant, PerMinute: 5500},
			{Name: "large", By: ByKey | ByModel, Models: []string{"large"}, PerMinute: 100},
			{Name: "all", PerMinute: 8000},
		},
	})
	for _, c := range []struct {
		key, model string
		tokens     int
		limit      string // that refuses
	}{
		{"key-a", "m", 4900, ""},
		{"key-a", "m", 200, "alice"},
		{"key-b", "m", 700, "a-team"},
		{"key-b", "m", 500, ""},
		{"key-c", "large", 90, ""},
		{"key-c", "large", 20, "large"},
		{"key-a", "large", 95, ""},
		{"key-c", "m", 900, ""},
		{"key-c", "m", 100, "a-key"},
		{"", "m", 600, ""},
		{"", "m", 500, "a-key"},
		{"alice", "m", 900, ""}, // a name is no key
		{"other", "m", 900, "all"},
	} {
		_, v := b.charge(c.key, c.model, c.tokens)
		if got := v.Limit; v.Refused != (c.limit != "") || v.Refused && got != c.limit {
			t.Errorf("%s, %s, %d: %+v, want %q", c.key, c.model, c.tokens, v, c.limit)
		}
	}
}

// TestClaims: who has not the key cannot use up its budget, nor get another one by
// making keys up where keys without a name count as one.
func TestClaims(t *testing.T) {
	c := perKey(1000, 0)
	c.Keys, c.Together = []Key{keyOf("alice", "sk-alice", "")}, true
	b := newBench(t, c)
	for i := range 50 {
		for _, claim := range []string{"alice", "sk-alic", "sk-alice ", fmt.Sprint("made-up-", i), string(c.Keys[0].Sum[:])} {
			b.passes(claim, 900)
		}
	}
	if u := b.Usage(); len(u) != 1 || u[0].Requests != 1 || u[0].Refused != 249 {
		t.Errorf("%+v", u)
	}
	if !b.passes("sk-alice", 1000) {
		t.Error("others have used the budget of alice")
	}
}

// Memory is bounded: clients that come when the table is full share an account, keys with a
// name do not, and idle accounts make room.
func TestAccountsAreBounded(t *testing.T) {
	c := perKey(1000, 0)
	c.MostAccounts = 100
	c.Keys = []Key{keyOf("alice", "sk-alice", "")}
	b := newBench(t, c)
	for i := range 5000 {
		b.passes(fmt.Sprint("flood-", i), 10)
	}
	if n := len(b.accounts); n > 102 {
		t.Errorf("%d accounts", n)
	}
	if !b.passes("sk-alice", 900) || b.passes("one-more", 10) {
		t.Error("a flood of keys is not counted together, or stands in for those with a name")
	}
	if s := b.Status(); s.Overflowed != 4901 || s.Accounts != 100 || s.Limits[0].Exhausted != 1 {
		t.Errorf("%+v", s)
	}
	b.now += 2 * time.Minute
	if !b.passes("late", 900) || !b.passes("later", 900) {
		t.Error("idle accounts make no room")
	}
}

// Keys may have names without any limit: then their tokens are counted alone.
func TestCountsWithoutLimits(t *testing.T) {
	b := newBench(t, Config{Keys: []Key{keyOf("alice", "sk-alice", "research")}})
	ch, v := b.charge("sk-alice", "m", 100)
	b.Settle(&ch, 20, false)
	if u := b.Usage(); v.Limit != "" || len(u) != 1 || u[0] != (Usage{Key: "alice", Tenant: "research", Model: "m", Requests: 1, Input: 100, Output: 20}) {
		t.Errorf("%+v, %+v", v, u)
	}
}

// A new configuration keeps the counts under the same name.
func TestApplyAgain(t *testing.T) {
	b := newBench(t, perKey(1000, 0))
	ch, _ := b.charge("k", "m", 900)
	c := perKey(2000, 0)
	c.Limits = append(c.Limits, Limit{Name: "all", PerDay: 5000})
	b.Apply(c)
	if b.passes("k", 1200) || !b.passes("k", 1000) {
		t.Error("what was counted is lost")
	}
	b.Apply(Config{})
	if b.On() || len(b.byKey) > 0 {
		t.Error("it is not off")
	}
	b.Settle(&ch, 100, false)
	b.Apply(perKey(1000, 0))
	b.Settle(&ch, 100, false)
	if !b.passes("k", 1000) {
		t.Error("a limit that was gone still counts")
	}
}

// TestNoAllocations: the hot path has none, for a client that is known.
func TestNoAllocations(t *testing.T) {
	c := perKey(1e12, 1e15)
	c.Keys = []Key{keyOf("alice", "sk-alice", "research")}
	c.Limits = append(c.Limits, Limit{Name: "a-team", By: ByTenant | ByModel, PerMinute: 1e12}, Limit{Name: "all", PerDay: 1e15})
	b := newBench(t, c)
	key := []byte("sk-alice")
	if n := testing.AllocsPerRun(1000, func() {
		b.now += time.Second
		ch, _ := b.Charge(b.Identify(key), "m", 1000, false)
		b.Settle(&ch, 10, false)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCharge(b *testing.B) {
	c := perKey(1e12, 1e15)
	c.Limits = append(c.Limits, Limit{Name: "all", PerDay: 1e15})
	l := newBench(b, c)
	key := []byte("sk-of-a-client-0123456789")
	b.ReportAllocs()
	for b.Loop() {
		l.now += time.Millisecond
		ch, _ := l.Charge(l.Identify(key), "m", 1000, false)
		l.Settle(&ch, 10, false)
	}
}

// TestConcurrent has everything happen at once, for the race detector.
func TestConcurrent(t *testing.T) {
	var now atomic.Int64
	c := perKey(100_000, 1e9)
	c.MostAccounts = 100
	l := New(func() time.Duration { return time.Duration(now.Add(int64(time.Millisecond))) }, nil)
	l.Apply(c)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				ch, _ := l.Charge(l.Identify(fmt.Append(nil, i*g)), "m", 10, i%2 == 0)
				l.Receive("b", l.Reports(nil, 50))
				l.Settle(&ch, 5, i%3 == 0)
				switch i % 50 {
				case g:
					l.Apply(c)
				case g + 10:
					_ = l.Restore(l.Snapshot(nil), time.Second)
				case g + 20:
					l.Status()
					l.Usage()
				}
			}
		})
	}
	wg.Wait()
	if s := l.Status(); s.Accounts > 100 {
		t.Errorf("%+v", s)
	}
}
