package prompt

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestHeadAndTail scans a head and a tail of any lengths and compares with what
// sonic says of the members that lie wholly in one of them.
func TestHeadAndTail(t *testing.T) {
	for _, e := range []Endpoint{ChatCompletions, Responses, Other} {
		t.Run(e.String(), func(t *testing.T) {
			var b Body
			rapid.Check(t, func(t *rapid.T) {
				g := gen{t}
				d := g.document(e, false, g.n(1) == 0)
				all := members(d.text)
				head := rapid.IntRange(strings.IndexByte(d.text, '{')+1, strings.LastIndexByte(d.text, '}')).Draw(t, "head")
				seen := 0
				for seen < len(d.seen) && d.seen[seen] <= head {
					seen++
				}
				for from := range len(d.text) {
					b.Scan([]byte(d.text[:head]), e, 0)
					text := b.TextBytes
					first := len(all)
					for first > 0 && d.scalar[first-1] && d.before[first-1] >= from {
						first--
					}
					b.ScanTail([]byte(d.text[from:]))
					want := consult(slices.Concat(all[:seen], all[first:]), e)
					if s := scalarsDiffer(&b, want); s != "" {
						t.Fatalf("%s\nhead %s\ntail %s", s, d.text[:head], d.text[from:])
					}
					if b.Complete || b.TextBytes != text {
						t.Fatalf("the tail changed more than scalars: %+v", b)
					}
				}
			})
		})
	}
}

func TestTailRefuses(t *testing.T) {
	for _, tail := range []string{
		``, `}`, `"}`, `""}`, `:1}`, `"n":7}`, `,"n":7`, `,"n":7}x`, `,"n":}`, `,"n" 7}`, `,n":7}`, `,"n":tru}`, `,"n":7e}`,
		`,"n":{"a":7}}`, `,"n":[7]}`, `x"n":7}`, `,\"n":7}`, `,"n":"7\"}`, `\","n":"}`, `,"n":7]`, "\x1f\x8b", `,"x":-,"n":7,"y":-}`, `,"n":7,"x\\"y":1}`, `,"n":7,"x":"\\"y"}`,
	} {
		b := scan(`{"messages":[`, ChatCompletions)
		b.ScanTail([]byte(tail))
		if b.N != 1 || b.Model != nil {
			t.Errorf("%s: %+v", tail, b)
		}
	}
	b := scan(`no object`, ChatCompletions)
	if b.ScanTail([]byte(`,"n":7}`)); b.N != 1 {
		t.Error("a tail without a head was read")
	}
	b = scan(`{"n":2}`, ChatCompletions)
	if b.ScanTail([]byte(`,"n":7}`)); b.N != 2 {
		t.Error("a tail was read after a whole body")
	}
}

func TestTailWins(t *testing.T) {
	b := scan(`{"model":"first","user":"u","n":3,"messages":[{"role":"user","content":"abc`, ChatCompletions)
	b.ScanTail([]byte(`x"}],"model":"l\u0061st","n":null , "max_tokens":5, "stream" : true}` + "\n"))
	if string(b.Model) != "last" || string(b.User) != "u" || b.N != 1 || b.MaxTokens != 5 || !b.Stream || b.Complete {
		t.Errorf("%+v", b)
	}
}

func FuzzScanTail(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"content":"x"}],"model":"m","n":2,"stream":true,"priority":-3,"user":"u","cache_salt":"\\"}`,
		`{"a":"\\\\\"","n":7}`, `{"n":7}`, `{"a":",\"n\":7}`, `{"\"n":7}`, `{"a,\"n":7,"model":""}`, `}`, `"}`, `\\\\"}`,
	} {
		for at := range len(s) {
			f.Add([]byte(s), len(s)/2, at)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, head, from int) {
		if head < 0 || head > len(data) || from < 0 || from > len(data) {
			return
		}
		var before, b Body
		before.Scan(data[:head], ChatCompletions, 0)
		b.Scan(data[:head], ChatCompletions, 0)
		b.ScanTail(data[from:])
		if trimmed := bytes.TrimLeft(data, " \t\r\n"); !json.Valid(data) || trimmed[0] != '{' ||
			!bytes.Equal(bytes.ToValidUTF8(data, nil), data) {
			return
		}
		// Every field is either as the head has it or as the document has it.
		whole := consult(members(string(data)), ChatCompletions)
		is := sameBytes
		if !is(b.Model, whole.model) && !is(b.Model, before.Model) ||
			!is(b.User, whole.user) && !is(b.User, before.User) ||
			!is(b.CacheSalt, whole.salt) && !is(b.CacheSalt, before.CacheSalt) ||
			b.N != whole.n && b.N != before.N ||
			b.Stream != whole.stream && b.Stream != before.Stream ||
			b.Priority != whole.priority && b.Priority != before.Priority {
			t.Fatalf("%s\nhead %s\ntail %s", data, data[:head], data[from:])
		}
	})
}
