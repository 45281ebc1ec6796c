package wire

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/budget"
)

func name(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"", "llama", "r1", "r2", "gold", "a name"}).Draw(t, what)
}

// event draws an event as agents send it.
func event(t *rapid.T) decider.Event {
	e := decider.Event{Kind: decider.EventKind(rapid.IntRange(1, int(decider.EventKinds)-1).Draw(t, "kind")), Pool: name(t, "pool")}
	switch e.Kind {
	case decider.EventListBegins, decider.EventListEnds:
		return e
	}
	e.Replica = name(t, "replica")
	if e.Kind == decider.EventDigest {
		e.Count, e.Sum = rapid.IntRange(0, 1e6).Draw(t, "count"), rapid.Uint64().Draw(t, "sum")
		return e
	}
	copy(e.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	e.Other = rapid.Bool().Draw(t, "other")
	ms := func(what string) time.Duration {
		return time.Duration(rapid.IntRange(0, 1e6).Draw(t, what)) * time.Millisecond
	}
	switch e.Kind {
	case decider.EventFirstToken:
		e.ByProxy = rapid.Bool().Draw(t, "proxy")
	case decider.EventEnded:
		e.End, e.Status, e.TTFT = decider.End(rapid.IntRange(0, 8).Draw(t, "end")), rapid.IntRange(0, 599).Draw(t, "status"), ms("ttft")
		e.Redispatched = rapid.Bool().Draw(t, "redispatched")
	case decider.EventPlaced, decider.EventListed, decider.EventHeld:
		switch e.Kind {
		case decider.EventHeld:
			e.Age, e.Left = ms("age"), ms("left")
		case decider.EventListed:
			e.Age, e.Quiet = ms("age"), ms("quiet")
			fallthrough
		default:
			e.Adopted, e.Started, e.Waited = rapid.Bool().Draw(t, "adopted"), rapid.Bool().Draw(t, "started"), ms("waited")
		}
		r := &e.Request
		r.LoRA, r.Band = name(t, "lora"), name(t, "band")
		r.Tenant, r.Stream = rapid.Uint64Range(0, 3).Draw(t, "tenant"), rapid.Bool().Draw(t, "stream")
		if r.HasSession = rapid.Bool().Draw(t, "session"); r.HasSession {
			r.Session = rapid.Uint64().Draw(t, "key")
		}
		r.Input, r.Output = rapid.IntRange(0, 1e6).Draw(t, "input"), rapid.IntRange(-1, 1e6).Draw(t, "output")
		r.TextBytes, r.ExactTokens, r.Cached = rapid.IntRange(0, 1e6).Draw(t, "text"), rapid.IntRange(0, 9).Draw(t, "exact"), rapid.IntRange(0, 1e6).Draw(t, "cached")
		if rapid.Bool().Draw(t, "prompt") {
			r.KeyScheme = rapid.Uint32Range(1, 1000).Draw(t, "scheme")
			// Prompts that share beginnings, with chained keys.
			key := rapid.Uint64Range(1, 3).Draw(t, "conversation") << 20
			for range rapid.IntRange(0, 30).Draw(t, "blocks") {
				key++
				if rapid.IntRange(0, 20).Draw(t, "turn") == 0 {
					key += 1 << 10
				}
				r.Blocks = append(r.Blocks, key)
			}
		}
	}
	return e
}

// TestBatches: whoever has read all batches since the last reset reads each event
// as it was. Who has missed one reads no prompt wrongly.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Encoder
		var all, some Decoder
		for number := range uint64(rapid.IntRange(1, 12).Draw(t, "batches")) {
			if rapid.IntRange(0, 4).Draw(t, "forget") == 0 {
				x.Forget()
			}
			var events []decider.Event
			for range rapid.IntRange(0, 8).Draw(t, "events") {
				e := event(t)
				events = append(events, e)
				if !x.Add(&e) {
					t.Fatal("full")
				}
			}
			body := x.Append(nil, number, time.Duration(number)*time.Second)
			missed := rapid.IntRange(0, 3).Draw(t, "missed") == 0
			for who, d := range map[string]*Decoder{"all": &all, "some": &some} {
				if missed && who == "some" {
					d.Missed()
					continue
				}
				b, err := d.Begin(body)
				if err != nil || b.Number != number || b.Stamp != time.Duration(number)*time.Second {
					t.Fatalf("%+v, %v", b, err)
				}
				d.Follow(b)
				for i := range events {
					e, err := d.Next()
					if err != nil || e == nil {
						t.Fatalf("event %d: %v", i, err)
					}
					want := events[i]
					if who == "some" && e.Request.KeyScheme == 0 {
						want.Request.KeyScheme, want.Request.Blocks = 0, nil
					}
					if !slices.Equal(e.Request.Blocks, want.Request.Blocks) {
						t.Fatalf("%s: blocks %v, want %v", who, e.Request.Blocks, want.Request.Blocks)
					}
					got := *e
					got.Request.Blocks, want.Request.Blocks = nil, nil
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("%s: %+v, want %+v", who, got, want)
					}
				}
				if e, err := d.Next(); e != nil || err != nil {
					t.Fatalf("%+v, %v after the last one", e, err)
				}
			}
			if all.Broken() {
				t.Fatal("nothing was missed")
			}
		}
	})
}

// TestKnownPrefix: blocks that were sent before are not sent again.
func TestKnownPrefix(t *testing.T) {
	var x Encoder
	blocks := make([]uint64, 400)
	for i := range blocks {
		blocks[i] = uint64(i+1) * 0x1234567
	}
	size := func(n int) int {
		e := decider.Event{Kind: decider.EventPlaced, Pool: "p", Replica: "r", Request: decider.RequestSummary{KeyScheme: 1, Blocks: blocks[:n]}}
		x.Add(&e)
		return len(x.Append(nil, 1, 0))
	}
	if n := size(300); n < 300*8 {
		t.Errorf("%d bytes for 300 blocks", n)
	}
	if n := size(303); n > 100 {
		t.Errorf("%d bytes for 3 more", n)
	}
}

// TestSeal: a message opens with the secret, the sender and the epoch that it was
// sealed with, and no others.
func TestSeal(t *testing.T) {
	secret := NewSecret("prod", []byte("a secret of the cluster"))
	h := Head{KindBatch, 7, "agent-a"}
	body := []byte("what is known")
	m := secret.Key("agent-a", 7).Seal(nil, h, body)
	got, n, err := ReadHead(m)
	if err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	if b, err := secret.Key("agent-a", 7).Open(nil, m, n); err != nil || !bytes.Equal(b, body) {
		t.Errorf("%q, %v", b, err)
	}
	for name, k := range map[string]Key{
		"secret":  NewSecret("prod", []byte("another secret")).Key("agent-a", 7),
		"cluster": NewSecret("test", []byte("a secret of the cluster")).Key("agent-a", 7),
		"sender":  secret.Key("agent-b", 7),
		"epoch":   secret.Key("agent-a", 8),
	} {
		if _, err := k.Open(nil, m, n); !errors.Is(err, ErrSecret) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for i := range m {
		bad := slices.Clone(m)
		bad[i] ^= 1
		h, n, err := ReadHead(bad)
		if err == nil {
			_, err = secret.Key(h.From, h.Epoch).Open(nil, bad, n)
		}
		if err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
	}
	m[3] = Version + 1
	if _, _, err := ReadHead(m[:4]); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if bytes.Equal(secret.Derive("prompts"), secret.Derive("routes")) {
		t.Error("two uses have the same secret")
	}
}

func FuzzDecode(f *testing.F) {
	var x Encoder
	for _, e := range []decider.Event{
		{Kind: decider.EventPlaced, Pool: "llama", Replica: "r1", Request: decider.RequestSummary{Input: 4000, Output: -1, KeyScheme: 1, Blocks: []uint64{1, 2, 3}, HasSession: true, LoRA: "x", Band: "gold", Tenant: 3}},
		{Kind: decider.EventConnected, Pool: "llama", Replica: "r1"},
		{Kind: decider.EventEnded, Pool: "llama", Replica: "r1", Status: 200, TTFT: time.Second},
		{Kind: decider.EventListBegins, Pool: "llama"}, {Kind: decider.EventDigest, Pool: "llama", Replica: "r1", Count: 3},
	} {
		x.Add(&e)
	}
	f.Add(x.Append(nil, 1, time.Second))
	f.Fuzz(func(t *testing.T, body []byte) {
		var d Decoder
		for range 2 {
			b, err := d.Begin(body)
			if err != nil {
				return
			}
			d.Follow(b)
			for {
				e, err := d.Next()
				if e == nil || err != nil {
					break
				}
				if len(e.Request.Blocks) > decider.MostBlocks || e.TTFT < 0 || e.Age < 0 {
					t.Fatalf("%+v", e)
				}
			}
		}
		if cap(d.blocks) > 4*decider.MostBlocks || len(d.interned) > mostInterned {
			t.Fatal("it has grown")
		}
	})
}

func FuzzReadHead(f *testing.F) {
	f.Add(NewSecret("c", []byte("s")).Key("a", 1).Seal(nil, Head{KindAsk, 1, "a"}, []byte("x")))
	key := NewSecret("c", []byte("another")).Key("a", 1)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, err := ReadHead(b); err == nil {
			if _, err := key.Open(nil, b, n); err == nil {
				t.Fatal("opened without the secret")
			}
		}
	})
}

func FuzzReadUsage(f *testing.F) {
	f.Add(AppendUsage(nil, []budget.Report{{Limit: 1, ID: budget.ID{2}, Used: [2]int64{3, 1 << 40}}, {Limit: 5}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		reports, err := ReadUsage(nil, body)
		if len(reports) > MostUsage {
			t.Fatalf("%d reports", len(reports))
		}
		if err == nil && !bytes.Equal(AppendUsage(nil, reports), body) {
			for _, r := range reports {
				if r.Used[0] >= 1<<62 || r.Used[1] >= 1<<62 {
					return
				}
			}
			t.Fatalf("read as %+v", reports)
		}
	})
}
