package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustRead(t *testing.T, text string, o Options) *Trace {
	t.Helper()
	trace, err := Read(strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestReadLengths(t *testing.T) {
	const text = `{"timestamp": 9000, "input_length": 1030, "output_length": 0, "hash_ids": [0, 1, 3]}

{"timestamp": 6000, "input_length": 1536, "output_length": 7, "hash_ids": [0, 1, 2]}
{"timestamp": 6000, "input_length": 100, "output_length": 1, "hash_ids": [4]}
`
	trace := mustRead(t, text, Options{})
	if trace.BlockTokens != 512 || trace.Tick != 3*time.Second || len(trace.Requests) != 3 {
		t.Fatalf("%+v", trace)
	}
	first, short, last := trace.Requests[0], trace.Requests[1], trace.Requests[2]
	if first.At != 0 || first.Input != 1536 || first.Output != 7 || len(first.Blocks) != 3 || len(first.Visible) != 3 {
		t.Errorf("first %+v", first)
	}
	if last.At != 3*time.Second || last.Output != 1 || len(last.Blocks) != 2 || !slices.Equal(last.Blocks, first.Blocks[:2]) {
		t.Errorf("the partial block is kept, or the common blocks differ: %+v", last)
	}
	if len(short.Blocks) != 0 || !short.HasSession || short.Session == first.Session {
		t.Errorf("short %+v", short)
	}
	if cut := mustRead(t, text, Options{VisibleChars: 4 * 1100}); len(cut.Requests[0].Visible) != 2 || len(cut.Requests[0].Blocks) != 3 || cut.Requests[0].Estimate != 1536 || !cut.Requests[0].Truncated || cut.Requests[1].Truncated {
		t.Errorf("cut %+v", cut.Requests[0])
	}
}

// TestArrivals: requests of one tick keep their order and are spread over the
// tick, also when timestamps are rounded; exact times are not changed.
func TestArrivals(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"timestamp":%d,"input_length":%d}`+"\n", i/10*3000-i/10%2, i+1)
	}
	trace := mustRead(t, b.String(), Options{})
	if trace.Tick < 2999*time.Millisecond || trace.Tick > 3001*time.Millisecond {
		t.Fatalf("tick %v", trace.Tick)
	}
	list := trace.Arrivals(3000.0/900, rand.New(rand.NewPCG(1, 1)))
	var width time.Duration
	for i, a := range list {
		if a.Request.Input != i+1 {
			t.Fatalf("request %d arrives as number %d", a.Request.Input, i+1)
		}
		if i%10 == 9 {
			width += (a.At - list[i-9].At) / 300
		}
	}
	// Ten numbers drawn from an interval span 9/11 of it.
	if want := 3 * time.Second * 9 / 11; width < want*9/10 || width > want*11/10 {
		t.Errorf("ten requests of a tick span %v, want about %v", width, want)
	}
	if fine := mustRead(t, `{"timestamp":0,"prompt":"a"}`+"\n"+`{"timestamp":60000,"prompt":"b"}`, Options{}); fine.Tick != 0 {
		t.Errorf("tick %v", fine.Tick)
	}
}

// TestSessions: the turns of one conversation share a session; a common system
// prompt does not make one.
func TestSessions(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, `{"timestamp":0,"input_length":1536,"output_length":1,"hash_ids":[0,%d,%d]}`+"\n", 1+i/3%2, 100+i/3)
	}
	trace := mustRead(t, b.String(), Options{})
	sessions := map[uint64]int{}
	for _, c := range trace.Requests {
		sessions[c.Session]++
	}
	if len(sessions) != 100 {
		t.Errorf("%d sessions of 100", len(sessions))
	}
}

func TestReadText(t *testing.T) {
	long := strings.Repeat("All work and no play makes a dull replica. ", 100) // 4,300 bytes
	trace := mustRead(t, `{"timestamp": 1000, "path": "/v1/chat/completions", "session": "a", "body": {"messages": [{"role": "user", "content": "`+long+`"}], "max_tokens": 77}}
{"timestamp": 1500, "session": "a", "body": {"messages": [{"role": "user", "content": "`+long+`"}, {"role": "assistant", "content": "So it is."}]}, "output_tokens": 5}
{"timestamp": 2000, "prompt": "`+long+`"}
`, Options{})
	if trace.BlockTokens != 256 || trace.Tick != 0 {
		t.Errorf("blocks of %d tokens, tick %v", trace.BlockTokens, trace.Tick)
	}
	a, b, c := trace.Requests[0], trace.Requests[1], trace.Requests[2]
	if a.Input != 1076 || a.Output != 77 || len(a.Blocks) != 4 || !a.HasSession {
		t.Errorf("first %+v", a)
	}
	if b.At != 500*time.Millisecond || b.Output != 5 || b.Session != a.Session || !slices.Equal(a.Blocks, b.Blocks[:4]) {
		t.Errorf("second %+v", b)
	}
	if c.Input != 1075 || c.Output != defaultOutput || c.HasSession || slices.Equal(c.Blocks, a.Blocks) {
		t.Errorf("third %+v", c)
	}
	cut := mustRead(t, `{"prompt": "`+long+`"}`, Options{VisibleChars: 2200}).Requests[0]
	if len(cut.Visible) != 2 || !slices.Equal(cut.Visible, cut.Blocks[:2]) || cut.Estimate < 1000 || cut.Estimate > 1150 || !cut.Truncated {
		t.Errorf("cut %+v", cut)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":         "trace: no requests\n" + Example,
		"nonsense": "trace: no requests\n" + Example,
		"{}":       "trace: line 1: none of the keys input_length, body, prompt and prompt_tokens\n" + Example,
		"{":        "trace: line 1: not a JSON object of a known form\n" + Example,
		"[1,2]":    "trace: element 1: not a JSON object of a known form\n" + Example,
		`{"timestamp":"yesterday","input_length":1}`:                                      `trace: line 1: time "yesterday", want a number or a date such as 2026-11-22T05:00:00.123Z`,
		`{"timestamp":0,"input_length":1}` + "\n" + `{"timestamp":1e12,"input_length":1}`: "trace: the times of the requests are years apart: want the same unit for all",
		"{\"prompt\":\"a\"}\nnonsense":                                                    "trace: line 2: not a JSON object of a known form",
		"{\"prompt\":\"a\"}\n{\"input_length\":1}":                                        "trace: line 2: not in the same form as the first request",
		`{"prompt":"a","body":{}}`:                                                        "trace: line 1: both a body and a prompt",
		`{"input_length":512,"hash_ids":[1,2]}`:                                           "trace: line 1: more hash_ids than blocks of 512 tokens",
		`{"timestamp":1e300,"input_length":1}`:                                            `trace: line 1: time "1e300", want a number or a date such as 2026-11-22T05:00:00.123Z`,
		`{"input_length":99999999}`:                                                       "trace: line 1: input_length 99999999 and output_length 0, want up to 16777216 tokens, input at least 1",
	} {
		if _, err := Read(strings.NewReader(text), Options{}); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}`+"\n"+`{"timestamp": 3000, "input_length": 7, "output_length": 1, "hash_ids": [0]}`), 0)
	f.Add([]byte(`{"timestamp": 1, "session": "s", "path": "/v1/responses", "body": {"input": "hello", "max_output_tokens": 3}}`), 20)
	f.Add([]byte(`{"prompt": "x", "output_tokens": -1}`), 1)
	f.Add([]byte(`{"timestamp": -1e11, "prompt": "x"}`+"\n"+`{"timestamp": 1e12, "prompt": ""}`), -1)
	for _, form := range forms {
		f.Add([]byte(form), 100)
		f.Add(compressed([]byte(form)), 0)
	}
	f.Add(compressed([]byte(forms[0]))[:40], 0)
	f.Fuzz(func(t *testing.T, data []byte, visible int) {
		trace, err := Read(bytes.NewReader(data), Options{VisibleChars: max(visible, 0)})
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, a := range trace.Arrivals(1, rand.New(rand.NewPCG(1, 1))) {
			c := a.Request
			if a.At < last || c.Input < 1 || c.Output < 1 || c.Input > maxTokens || c.Output > maxTokens || trace.BlockTokens < 1 || len(c.Visible) > len(c.Blocks) && trace.BlockTokens == mooncakeBlock {
				t.Fatalf("at %v after %v: %+v", a.At, last, c)
			}
			last = a.At
		}
	})
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(`{"prompt": "a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if trace, err := ReadFile(path, Options{}); err != nil || len(trace.Requests) != 1 {
		t.Errorf("%+v: %v", trace, err)
	}
	if _, err := ReadFile(path+".none", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}

// TestArrivalsAtOnce: requests without a time span are spread evenly.
func TestArrivalsAtOnce(t *testing.T) {
	trace := &Trace{Requests: make([]Request, 3)}
	for i, a := range trace.Arrivals(2, rand.New(rand.NewPCG(1, 1))) {
		if want := time.Duration(i) * time.Second / 2; a.At != want {
			t.Errorf("request %d at %v, want %v", i, a.At, want)
		}
	}
}
