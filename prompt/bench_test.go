package prompt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// chatBody returns a chat request of about size bytes as the official Python
// client writes it: messages first, then model, sampling and one tool. The text
// is prose, with a line feed every 80 to 120 bytes and a quoted word in 80; with
// code it has a line feed every 20 to 60 bytes and a quoted word in 10.
func chatBody(size int, code bool) []byte {
	line, spread, quoted := 80, 40, 80
	if code {
		line, quoted = 20, 10
	}
	rng := rand.New(rand.NewPCG(1, uint64(size)))
	words := []string{"the", "request", "goes", "to", "a", "replica", "whose", "cache", "already",
		"holds", "its", "prefix", "return", "x", "for", "range", "über", "func", "that"}
	const tail = `],"model":"meta-llama/Llama-3.1-8B-Instruct","max_tokens":512,"stream":true,` +
		`"temperature":0.7,"top_p":0.95,"stream_options":{"include_usage":true},` +
		`"tools":[{"type":"function","function":{"name":"get_weather","description":"Current weather",` +
		`"parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]}`
	var b strings.Builder
	b.WriteString(`{"messages":[`)
	// A conversation of about eight turns, or of a few KiB a turn if it is long.
	perTurn := max(200, min(size/8, 6000))
	for turn := 0; b.Len() < size-len(tail)-100; turn++ {
		if turn > 0 {
			b.WriteString(", ")
		}
		role := "user"
		if turn%2 == 1 {
			role = "assistant"
		}
		fmt.Fprintf(&b, `{"role": "%s", "content": "`, role)
		end := min(b.Len()+perTurn, size-len(tail)-4)
		for column := 0; b.Len() < end; {
			w := words[rng.IntN(len(words))]
			if rng.IntN(quoted) == 0 {
				w = `\"` + w + `\"`
			}
			b.WriteString(w)
			if column += len(w) + 1; column > line+rng.IntN(spread) {
				b.WriteString(`\n`)
				column = 0
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteString(`"}`)
	}
	b.WriteString(tail)
	return []byte(b.String())
}

var benchSizes = []struct {
	name string
	size int
}{{"1KiB", 1 << 10}, {"16KiB", 16 << 10}, {"128KiB", 128 << 10}, {"1MiB", 1 << 20}}

func BenchmarkScan(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			data := chatBody(s.size, false)
			var body Body
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				body.Scan(data, ChatCompletions, 2<<20)
			}
			if !body.Complete {
				b.Fatal("not complete")
			}
		})
	}
}

func BenchmarkScanAndHash(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) { benchScanAndHash(b, chatBody(s.size, false)) })
	}
	b.Run("128KiB-code", func(b *testing.B) { benchScanAndHash(b, chatBody(128<<10, true)) })
}

func benchScanAndHash(b *testing.B, data []byte) {
	var body Body
	var blocks []uint64
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		body.Scan(data, ChatCompletions, 2<<20)
		blocks = body.Blocks(blocks[:0], Seed(unkeyed, body.Model, nil, body.CacheSalt), 1024)
	}
	b.ReportMetric(float64(len(data))/float64(bytes.Count(data, []byte{'\\'})), "B/escape")
	if !body.Complete || len(blocks) < body.TextBytes/1024 {
		b.Fatal("blocks:", len(blocks), "of", body.TextBytes, "bytes")
	}
}

// BenchmarkScanQuotes is the worst a client can send: every second byte escaped.
func BenchmarkScanQuotes(b *testing.B) {
	data := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat(`\"`, 1<<19) + `"}]}`)
	var body Body
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		body.Scan(data, ChatCompletions, 0)
	}
}
