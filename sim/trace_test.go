package sim

import (
	"bufio"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/test/proxies"
)

const (
	conversation      = "../../shared/traces/mooncake-conversation.jsonl"
	conversationBlock = 512 // tokens behind one hash id
)

type conversationRow struct {
	Timestamp int64    `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`

	at time.Duration
}

// readConversation reads the conversation trace, in order of time. Requests of
// one 3 s tick get random times within it.
func readConversation(tb testing.TB) []conversationRow {
	f, err := os.Open(conversation)
	if os.IsNotExist(err) {
		proxies.Missing(tb, "no trace: %s", conversation)
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 1))
	var rows []conversationRow
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r conversationRow
		if err := sonic.Unmarshal(lines.Bytes(), &r); err != nil {
			tb.Fatal(err)
		}
		r.HashIDs = r.HashIDs[:r.Input/conversationBlock]
		r.at = time.Duration(float64(r.Timestamp)*1e6 + random.Float64()*3e9)
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	slices.SortStableFunc(rows, func(a, b conversationRow) int { return int(a.at - b.at) })
	return rows
}

// replayInTurn sends the trace to the engines in turn at rate requests/s. It
// returns the times to first token in seconds, sorted, the sum of the times at
// which the engines became idle, and the hit rate.
func replayInTurn(tb testing.TB, rows []conversationRow, engines, cacheTokens int, rate float64) (ttft []float64, busy time.Duration, hits float64) {
	span := rows[len(rows)-1].at - rows[0].at
	stretch := float64(len(rows)) / rate / span.Seconds()
	all := make([]*Engine, engines)
	for i := range all {
		var err error
		if all[i], err = NewEngine(EngineOptions{Profile: Profile70B, BlockSize: conversationBlock, CacheTokens: cacheTokens}); err != nil {
			tb.Fatal(err)
		}
	}
	arrived := make(map[*Job]time.Duration, len(rows))
	drain := func(e *Engine, until time.Duration) {
		for {
			next, ok := e.Next()
			if !ok || next > until {
				return
			}
			for _, ev := range e.Step(next) {
				if ev.Kind == FirstToken {
					ttft = append(ttft, (ev.At - arrived[ev.Job]).Seconds())
				}
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		at := time.Duration(float64(r.at-rows[0].at) * stretch)
		j := &Job{Blocks: r.HashIDs, Input: r.Input, Output: r.Output}
		arrived[j] = at
		e := all[i%engines]
		drain(e, at)
		if err := e.Submit(at, j); err != nil {
			tb.Fatal(err)
		}
	}
	var queries, found uint64
	for _, e := range all {
		drain(e, math.MaxInt64)
		busy += e.end
		s := e.Stats()
		queries, found = queries+s.QueryTokens, found+s.HitTokens
	}
	if len(ttft) != len(rows) {
		tb.Fatalf("%d first tokens of %d requests", len(ttft), len(rows))
	}
	slices.Sort(ttft)
	return ttft, busy, float64(found) / float64(queries)
}

// TestEngineTraceHitRate: one cache has the hit rate that the publishers of the
// trace and of the policy comparison report.
func TestEngineTraceHitRate(t *testing.T) {
	rows := readConversation(t)
	for _, c := range []struct {
		cache    int
		min, max float64
	}{
		{1_000_000, 0.054, 0.056},
		{200_000_000, 0.3735 - 0.003, 0.3735 + 0.003},
	} {
		// One request after the other: only the order matters.
		e, err := NewEngine(EngineOptions{Profile: Profile70B, BlockSize: conversationBlock, CacheTokens: c.cache})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			j := &Job{Blocks: rows[i].HashIDs, Input: rows[i].Input, Output: 1}
			if err := e.Submit(0, j); err != nil {
				t.Fatal(err)
			}
			finish(e)
		}
		s := e.Stats()
		rate := float64(s.HitTokens) / float64(s.QueryTokens)
		t.Logf("%d tokens of cache: hit rate %.4f", c.cache, rate)
		if rate < c.min || rate > c.max {
			t.Errorf("%d tokens of cache: hit rate %.4f, want %.4f to %.4f", c.cache, rate, c.min, c.max)
		}
	}
}

// TestEngineTraceRoundRobin: round robin over eight engines saturates at the rate
// that the policy comparison reports, with its times to first token.
func TestEngineTraceRoundRobin(t *testing.T) {
	rows := readConversation(t)
	const published = 4.67 // requests/s
	_, busy, _ := replayInTurn(t, rows, 8, 500_000, 1000)
	saturation := 8 * float64(len(rows)) / busy.Seconds()
	t.Logf("saturation %.2f requests/s", saturation)
	if saturation < 0.9*published || saturation > 1.1*published {
		t.Errorf("saturation at %.2f requests/s, want %v ± 10 %%", saturation, published)
	}
	for _, c := range []struct{ load, p90 float64 }{{0.85, 47.3}, {0.95, 94.0}} {
		start := time.Now()
		ttft, _, hits := replayInTurn(t, rows, 8, 500_000, c.load*published)
		p90 := ttft[len(ttft)*9/10]
		t.Logf("load %.2f: p90 %.1f s, hit rate %.3f, in %v", c.load, p90, hits, time.Since(start))
		if p90 < 0.9*c.p90 || p90 > 1.1*c.p90 {
			t.Errorf("load %.2f: p90 of the time to first token %.1f s, want %.1f ± 10 %%", c.load, p90, c.p90)
		}
	}
}

func BenchmarkEngineTrace(b *testing.B) {
	rows := readConversation(b)
	b.ReportAllocs()
	for b.Loop() {
		replayInTurn(b, rows, 8, 500_000, 4)
	}
}
