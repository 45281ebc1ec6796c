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
)

const (
	conversation = "../../shared/traces/mooncake-conversation.jsonl"
	traceBlock   = 512 // tokens behind one hash id
)

type traceRow struct {
	Timestamp int64    `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`

	at time.Duration
}

// readTrace loads the conversation trace with the requests of each 3 s tick
// spread over it, in order of time.
func readTrace(tb testing.TB) []traceRow {
	f, err := os.Open(conversation)
	if os.IsNotExist(err) {
		tb.Skip("no trace: ", conversation)
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	chance := rand.New(rand.NewPCG(1, 1))
	var rows []traceRow
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r traceRow
		if err := sonic.Unmarshal(lines.Bytes(), &r); err != nil {
			tb.Fatal(err)
		}
		r.HashIDs = r.HashIDs[:r.Input/traceBlock]
		r.at = time.Duration(float64(r.Timestamp)*1e6 + chance.Float64()*3e9)
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	slices.SortStableFunc(rows, func(a, b traceRow) int { return int(a.at - b.at) })
	return rows
}

// replay sends the trace to engines in turn at rate requests/s and returns
// each time to first token, sorted, in seconds, and the time at which all was
// done.
func replay(tb testing.TB, rows []traceRow, engines, cacheTokens int, rate float64) (ttft []float64, end time.Duration, hits float64) {
	span := rows[len(rows)-1].at - rows[0].at
	stretch := float64(len(rows)) / rate / span.Seconds()
	fleet := make([]*Engine, engines)
	for i := range fleet {
		var err error
		if fleet[i], err = NewEngine(EngineOptions{Profile: Profile70B, BlockSize: traceBlock, CacheTokens: cacheTokens}); err != nil {
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
				end = max(end, ev.At)
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		at := time.Duration(float64(r.at-rows[0].at) * stretch)
		j := &Job{Blocks: r.HashIDs, Input: r.Input, Output: r.Output}
		arrived[j] = at
		e := fleet[i%engines]
		drain(e, at)
		if err := e.Submit(at, j); err != nil {
			tb.Fatal(err)
		}
	}
	var queries, found uint64
	for _, e := range fleet {
		drain(e, math.MaxInt64)
		s := e.Stats()
		queries, found = queries+s.QueryTokens, found+s.HitTokens
	}
	if len(ttft) != len(rows) {
		tb.Fatalf("%d first tokens of %d requests", len(ttft), len(rows))
	}
	slices.Sort(ttft)
	return ttft, end, float64(found) / float64(queries)
}
