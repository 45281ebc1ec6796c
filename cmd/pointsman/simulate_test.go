package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/alecthomas/kong"
	"github.com/bytedance/sonic"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/intake"
	"pointsman/record"
	"pointsman/resolve"
)

// simulateArgs parses the arguments of simulate as main does.
func simulateArgs(t *testing.T, args ...string) *simulateCmd {
	t.Helper()
	var c simulateCmd
	p, err := kong.New(&c, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

// writeTrace writes a small trace in Mooncake's form.
func writeTrace(t *testing.T) string {
	var b bytes.Buffer
	for i := range 400 {
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d]}`+"\n", i/5*3000, 600+i%400, 20+i%50, 1+i%90)
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A picture is headed by the workload's name or the trace's.
func TestSimulateTraffic(t *testing.T) {
	for want, c := range map[string]simulateCmd{"chat": {Workload: "chat"}, "day1": {Trace: "/traces/day1.jsonl"}} {
		if got := c.traffic(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSimulateJSON(t *testing.T) {
	trace := writeTrace(t)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	c := simulateArgs(t, "--trace", trace, "--replicas", "2", "--cache-tokens", "20000", "--profile", "8b", "--load", "0.8", "--seeds", "2", "--json", "--plot", plot,
		"--policy", "round_robin,session:load_bound=1.25:fallbacks=1,{name: session, fallbacks: 0}", "--policy", "shared_cache")
	var out bytes.Buffer
	if err := c.run(&out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		var row map[string]any
		if err := sonic.UnmarshalString(line, &row); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		names = append(names, row["policy"].(string))
		for _, path := range []string{"hit_rate", "ttft_s.mean", "ttft_s.p50", "ttft_s.p90", "ttft_s.p99", "e2e_s.p50", "e2e_s.p90", "e2e_s.p99", "good", "imbalance", "tpot_s.p90", "goodput", "tokens_per_s"} {
			at := any(row)
			for _, key := range strings.Split(path, ".") {
				at = at.(map[string]any)[key]
			}
			if x, ok := at.(float64); !ok || x <= 0 {
				t.Errorf("%s of %v is %v", path, row["policy"], at)
			}
		}
		if len(row) != 10 {
			t.Errorf("keys of %s", line)
		}
	}
	if want := []string{"round_robin", "session:load_bound=1.25:fallbacks=1", "{name: session, fallbacks: 0}", "shared_cache"}; !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	if b, err := os.ReadFile(plot); err != nil || !bytes.HasPrefix(b, []byte("<?xml")) {
		t.Errorf("plot: %v", err)
	}

	again := bytes.Clone(out.Bytes())
	out.Reset()
	if err := c.run(&out); err != nil || !bytes.Equal(again, out.Bytes()) {
		t.Errorf("a second run differs: %v\n%s%s", err, again, out.Bytes())
	}
}

func TestSimulateTable(t *testing.T) {
	c := simulateArgs(t, "--trace", writeTrace(t), "--replicas", "3", "--cache-tokens", "20000", "--profile", "70b:chunk=2048,base_ms=10",
		"--policy", "round_robin,random", "--load", "0.85", "--fail", "5s@1", "--speed-mix", "1,0.5", "--seeds", "2")
	var out bytes.Buffer
	if err := c.run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"400 requests, 3 replicas of 70b:chunk=2048,base_ms=10 with 20000 tokens", "load 0.85", "\nround_robin ", "\nrandom ", "TTFT p90 ±", " failed, "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// With the memory of the hosts more of each prompt is found, and it is said how much there.
func TestSimulateOffloading(t *testing.T) {
	var b bytes.Buffer
	for i := range 200 { // 30 documents in turn, more than fit into the caches
		d := 10 * (i % 30)
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 2100, "output_length": 20, "hash_ids": [%d, %d, %d, %d, %d]}`+"\n", i*1000, d, d+1, d+2, d+3, d+4)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rates := map[string]float64{}
	for _, tokens := range []string{"0", "400000"} {
		for _, policy := range []string{"least_work", "kv_aware", "shared_cache"} {
			c := simulateArgs(t, "--trace", trace, "--replicas", "2", "--cache-tokens", "8000", "--profile", "8b", "--rate", "1", "--json",
				"--policy", policy, "--baseline", "none", "--cpu-cache-tokens", tokens)
			var out bytes.Buffer
			if err := c.run(&out); err != nil {
				t.Fatal(err)
			}
			var row struct {
				Hit float64 `json:"hit_rate"`
				CPU float64 `json:"hit_rate_cpu"`
			}
			if err := sonic.Unmarshal(out.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			if tokens == "0" {
				rates[policy] = row.Hit
				if row.CPU != 0 {
					t.Errorf("%s: %v from hosts that keep nothing", policy, row.CPU)
				}
			} else if row.CPU <= 0 || row.Hit < rates[policy] || row.CPU > row.Hit {
				t.Errorf("%s: a hit rate of %v, %v of it from hosts; %v without", policy, row.Hit, row.CPU, rates[policy])
			}
		}
	}
}

func TestSimulateRefuses(t *testing.T) {
	trace := writeTrace(t)
	for args, want := range map[string]string{
		"--workload=chat":                              "want one of --trace and --workload",
		"--trace= --workload=mails":                    `--workload: unknown "mails"; want one of chat, agents, `,
		"--slo=fast":                                   `slo: "fast", want ttft=2s,tpot=50ms`,
		"--max-tokens=32m":                             `max-tokens: "32m", want tokens such as 32k`,
		"--baseline=best":                              `baseline: policy best: unknown "best"; want `,
		"--baseline=random,session":                    `baseline: "random,session", want one policy`,
		"--event=leave@60s:r9":                         "event of replica r9, want r0 to r7",
		"--event=storm":                                `event: "storm", want slow@1500s:r3:0.33, `,
		"--share=-1s":                                  "a sharing delay of -1s, want 0 or more",
		"--policy=nonsense":                            `policy nonsense: unknown "nonsense"; want `,
		"--policy=session:fallbacks=7":                 "want 0, 1 or 2",
		"--policy=session:fallbacks":                   `policy session: "fallbacks", want option=value`,
		"--policy=session:load_bond=2":                 `policy session:load_bond=2: `,
		"--policy=random,":                             "policy: an empty name; want ",
		"--profile=7b":                                 `profile: unknown "7b"; want 70b or 8b`,
		"--profile=8b:chunk=x":                         `profile: "chunk=x", want a number for one of attention_depth, base_ms,`,
		"--profile=8b:chunk=1":                         "want more than the 256 running sequences",
		"--fail=3@60s":                                 `fail: "3@60s", want a time and a replica as 60s@3`,
		"--fail=60s@8":                                 "failure of replica 8, want 0 to 7",
		"--plot=x.pdf":                                 `plot: "x.pdf", want a file that ends in .svg or .png`,
		"--load=0":                                     "a load above 0",
		"--cache-tokens=10":                            "a cache of 10 tokens",
		"--poll=1s --no-first-token":                   "polling for first tokens",
		"--replicas=0":                                 "0 replicas, want 1 to 4096",
		"--cache-tokens=512":                           "no request of the trace fits",
		"--trace=/nonexistent/nowhere":                 "no such file",
		"--token-noise=1 --replicas=2":                 "a token noise of 1",
		"--mirror-scale=-1":                            "a mirror scale of -1",
		"--cpu-cache-tokens=-1":                        "-1 tokens in the memory of the host",
		"--cpu-cache-tokens=9 --cpu-transfer-speed=-1": "copied at -1 tokens/s",
	} {
		c := simulateArgs(t, append([]string{"--trace", trace}, strings.Fields(args)...)...)
		err := c.run(&bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want … %s …", args, err, want)
		}
		if err != nil && strings.HasPrefix(args, "--fail=60s@8") && err.Error() != want {
			t.Errorf("%s: said for each policy: %v", args, err)
		}
		if err != nil && strings.Contains(err.Error(), "pools[") {
			t.Errorf("%s: names the configuration that was made for it: %v", args, err)
		}
	}
}

// The policy of a recording is replayed with the options that it had.
func TestSimulateRecordedOptions(t *testing.T) {
	text := "pools: {chat: {models: [m], replicas: {r1: {address: '10.0.0.1:1'}, r2: {address: '10.0.0.2:1'}}, policy: {load_bound: 1.25, name: session}}}\n"
	o := resolve.Options{Policies: policies}
	c, err := config.Parse("f", []byte(text), nil, o.Checks())
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(c, o)
	if err != nil {
		t.Fatal(err)
	}
	d := decider.New(func() time.Duration { return time.Hour }, func() uint64 { return 1 })
	in := intake.New(d)
	in.Apply(r.Intake())
	folder := t.TempDir()
	path := filepath.Join(folder, "mine.jsonl.gz")
	recorder := record.New(d, time.Now(), metrics.NewSet())
	stop := recorder.File(record.FileOptions{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}, slog.New(slog.DiscardHandler))
	for i := range 50 {
		body := fmt.Appendf(nil, `{"model":"m","stream":true,"messages":[{"role":"user","content":"%d"}]}`, i)
		var q intake.Request
		in.Handle(&q, intake.Input{ID: fmt.Appendf(nil, "%032x", i), Path: []byte("/v1/chat/completions"), Body: body, BodySize: len(body)}, nil)
		d.Pool("chat").Finished(decider.Outcome{ID: q.ID, Server: []byte(q.Decision.Server), Status: 200, Bytes: 1000})
	}
	stop()
	var out bytes.Buffer
	if err := simulateArgs(t, "--trace", path, "--rate", "4").run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"recorded with {name: session, load_bound: 1.25}: 50 served", "\n{name: session, load_bound: 1.25}\n", "against {name: session, load_bound: 1.25}."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// A recording brings its own rate, replicas and caches, and is compared with the
// policy that ran. Flags override each of them.
func TestSimulateRecording(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"recorder":"pointsman","form":1,"pools":[{"name":"chat","policy":"session","replicas":3,"cache_tokens":90000}]}` + "\n")
	for i := range 300 {
		fmt.Fprintf(&b, `{"timestamp":%d,"input_length":%d,"output_length":%d,"pool":"chat","session":"s%d","stream":true,"outcome":"served","status":200,"ttft":0.25,"duration":1,"block_tokens":256,"hash_ids":[%d,%d]}`+"\n",
			1764000000000+i*500, 600+i%400, 20+i%50, i%40, i%4, 100+i%40)
	}
	path := filepath.Join(t.TempDir(), "mine.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"": {"300 requests, 3 replicas of 70b with 90000 tokens", "2.01 requests/s, load ", "recorded with session: 300 served; TTFT p50 0.25, p90 0.25, p99 0.25\n", "\nsession ", "\nleast_work ", "\nlower_bound ", "against session."},
		"--policy least_work --baseline random --rate 4 --replicas 5 --cache-tokens 40000": {"5 replicas of 70b with 40000 tokens", "4 requests/s", "against random."},
		"--load 0.5": {", load 0.5:"},
	} {
		var out bytes.Buffer
		if err := simulateArgs(t, append([]string{"--trace", path}, strings.Fields(args)...)...).run(&out); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", args, w, &out)
			}
		}
	}
}
