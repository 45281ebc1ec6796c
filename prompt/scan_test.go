package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bytedance/sonic/ast"
	"pgregory.net/rapid"
)

var endpoints = []Endpoint{Other, ChatCompletions, Completions, Embeddings, Responses, Messages, Rerank, Score, Tokenize}

// members parses the top-level members of a valid document.
func members(text string) []entry {
	n := ast.NewRaw(text)
	return entries(n)
}

func scan(text string, e Endpoint) *Body {
	b := new(Body)
	b.Scan([]byte(text), e, 0)
	return b
}

// blocks hashes byte by byte, so that it shows every byte of the stream.
func blocks(b *Body) []uint64 { return b.Blocks(nil, 7, 1) }

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// scalarsDiffer says how b's scalars differ from the oracle's, "" if not.
func scalarsDiffer(b *Body, o *oracle) string {
	switch {
	case !sameBytes(b.Model, o.model):
		return fmt.Sprintf("Model %q, want %q", b.Model, o.model)
	case !sameBytes(b.User, o.user):
		return fmt.Sprintf("User %q, want %q", b.User, o.user)
	case !sameBytes(b.CacheSalt, o.salt):
		return fmt.Sprintf("CacheSalt %q, want %q", b.CacheSalt, o.salt)
	case b.MaxTokens != o.maxTokens:
		return fmt.Sprintf("MaxTokens %d, want %d", b.MaxTokens, o.maxTokens)
	case b.N != o.n:
		return fmt.Sprintf("N %d, want %d", b.N, o.n)
	case b.Stream != o.stream:
		return fmt.Sprintf("Stream %v, want %v", b.Stream, o.stream)
	case b.Priority != o.priority || b.HasPriority != o.hasPriority:
		return fmt.Sprintf("Priority %d %v, want %d %v", b.Priority, b.HasPriority, o.priority, o.hasPriority)
	}
	return ""
}

func wholeDiffers(b *Body, o *oracle) string {
	if s := scalarsDiffer(b, o); s != "" {
		return s
	}
	switch {
	case !b.Complete:
		return "not Complete"
	case b.TextBytes != o.text:
		return fmt.Sprintf("TextBytes %d, want %d", b.TextBytes, o.text)
	case b.TokenIDs != o.ids:
		return fmt.Sprintf("TokenIDs %d, want %d", b.TokenIDs, o.ids)
	case b.MediaTokens != o.media:
		return fmt.Sprintf("MediaTokens %d, want %d", b.MediaTokens, o.media)
	case b.MessageCount != o.messages:
		return fmt.Sprintf("MessageCount %d, want %d", b.MessageCount, o.messages)
	case !slices.Equal(blocks(b), chainOf(o.bytes, 7, 1)):
		return fmt.Sprintf("stream differs from %q", o.bytes)
	}
	return ""
}

// TestEveryCut compares a document of each endpoint, whole and cut at every
// offset, with what sonic says.
func TestEveryCut(t *testing.T) {
	for _, e := range endpoints {
		t.Run(e.String(), func(t *testing.T) {
			var b Body
			rapid.Check(t, func(t *rapid.T) {
				g := gen{t}
				inOrder := g.n(1) == 0
				d := g.document(e, inOrder, g.n(3) == 0)
				all := members(d.text)
				b.Scan([]byte(d.text), e, 0)
				if s := wholeDiffers(&b, consult(all, e)); s != "" {
					t.Fatalf("%s\n%s", s, d.text)
				}
				whole := blocks(&b)
				end := strings.LastIndexByte(d.text, '}')
				text, ids, media := 0, 0, 0
				for cut := range len(d.text) {
					// Bytes behind the slice must not be read, so it gets its own.
					b.Scan([]byte(d.text[:cut]), e, 0)
					seen := 0
					for seen < len(d.seen) && d.seen[seen] <= cut {
						seen++
					}
					if s := scalarsDiffer(&b, consult(all[:seen], e)); s != "" {
						t.Fatalf("%s\n%s", s, d.text[:cut])
					}
					if b.Complete != (cut > end) {
						t.Fatalf("Complete is %v\n%s", b.Complete, d.text[:cut])
					}
					if b.TextBytes < text || b.TokenIDs < ids {
						t.Fatalf("less text than one byte before\n%s", d.text[:cut])
					}
					text, ids = b.TextBytes, b.TokenIDs
					media = max(media, b.MediaTokens)
					hs := blocks(&b)
					if inOrder && (len(hs) > len(whole) || !slices.Equal(hs, whole[:len(hs)])) {
						t.Fatalf("no prefix of the whole stream\n%s\n%s", d.text[:cut], d.text)
					}
				}
			})
		})
	}
}

// TestLimitIsACut compares a limit with a body that ends there.
func TestLimitIsACut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := gen{t}.document(ChatCompletions, false, false).text
		limit := rapid.IntRange(1, len(d)).Draw(t, "limit")
		var a, b Body
		a.Scan([]byte(d), ChatCompletions, limit)
		b.Scan([]byte(d[:limit]), ChatCompletions, 0)
		if a.Scanned > limit || a.Complete != b.Complete || !sameBytes(a.Model, b.Model) ||
			a.TextBytes != b.TextBytes || !slices.Equal(blocks(&a), blocks(&b)) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `[]`, `{"messages":[}]`, `{"a":}`, `{"a":1,}`, `{"model":"m`, "\x1f\x8b\b", `{"n":1,"n":null}`,
		`{"messages":[{"role":"user","content":"a\n\"b\u00e9"},{"content":[{"type":"text","text":"x"},null]}],"model":"m"}`,
		`{"messages":[{"content":"late","role":"user","tool_calls":[{"function":{"arguments":"{}","name":"f"}}]}]}`,
		`{"prompt":[1,2,-3,4.5,[5,[6]],"x",{"text":"y"}],"max_tokens":7,"suffix":"s"}`,
		`{"input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:x"}]}],"instructions":"i"}`,
		`{"system":[{"text":"s"}],"messages":[{"role":"user","content":[{"type":"image","source":{"data":"AAA"}}]}],"tools":[{}]}`,
		`{"messages":"\ud83d\ude00\ud83d","model":"\ud83d\u0041","user":"\x","cache_salt":""}`,
	} {
		for e := range endpoints {
			f.Add([]byte(s), uint8(e))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, endpoint uint8) {
		e := Endpoint(endpoint) % Endpoint(len(endpoints))
		var b Body
		b.Scan(data, e, 0)
		if b.Scanned > len(data) || b.TextBytes < 0 {
			t.Fatalf("%+v", b)
		}
		b.Blocks(nil, 0, 16)
		b.ScanTail(data)
		// encoding/json replaces what is not UTF-8; we take it as it is.
		if trimmed := bytes.TrimLeft(data, " \t\r\n"); !json.Valid(data) || trimmed[0] != '{' ||
			!bytes.Equal(bytes.ToValidUTF8(data, nil), data) {
			return
		}
		b.Scan(data, e, 0)
		if s := wholeDiffers(&b, consult(members(string(data)), e)); s != "" {
			t.Fatalf("%s\n%s", s, data)
		}
	})
}
