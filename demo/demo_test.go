package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim/replay"
	"pointsman/templates"
)

// The workload is the same for the same seed, is in order, and has every kind of
// request.
// Agents speak three APIs, and their conversations grow; sub-agents go on from them.
func TestAgentWorkload(t *testing.T) {
	calls, err := newAgents(1, 600)
	if err != nil || len(calls) != 600 {
		t.Fatal(err, len(calls))
	}
	paths, last, subs := map[string]int{}, map[string]int{}, 0
	for i, c := range calls {
		if i > 0 && c.at < calls[i-1].at || c.header == "" || !c.stream {
			t.Fatalf("%+v", c.at)
		}
		paths[c.path]++
		if _, ok := last[c.session]; !ok && strings.HasSuffix(c.session, "-sub") {
			subs++
		}
		if len(c.body) <= last[c.session] {
			t.Errorf("%s does not grow", c.session)
		}
		last[c.session] = len(c.body)
	}
	if len(paths) != 3 || subs < len(last)/6 {
		t.Errorf("%v, %d sub-agents of %d sessions", paths, subs, len(last))
	}
}

func TestWorkload(t *testing.T) {
	calls, err := newWorkload(1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newWorkload(1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	paths, sessions, streamed := map[string]int{}, map[string]int{}, 0
	for i, c := range calls {
		if string(c.body) != string(again[i].body) || c.at != again[i].at {
			t.Fatalf("request %d differs for the same seed", i)
		}
		if i > 0 && c.at < calls[i-1].at || !sonic.Valid(c.body) {
			t.Fatalf("request %d at %v: %s", i, c.at, c.body)
		}
		paths[c.path]++
		sessions[c.session]++
		if c.stream {
			streamed++
		}
	}
	if calls[0].at != 0 || len(calls) != 1000 {
		t.Errorf("%d requests, the first at %v", len(calls), calls[0].at)
	}
	if len(paths) != 3 || paths["/v1/chat/completions"] < 800 || streamed < 500 || streamed > 800 || len(sessions) < 200 || len(sessions) > 500 {
		t.Errorf("paths %v, %d streamed, %d sessions", paths, streamed, len(sessions))
	}
	trace, rate, err := (&Options{Replicas: 4, Load: 0.8, Speed: 4, CacheTokens: 40_000}).paced(calls)
	if err != nil {
		t.Fatal(err)
	}
	if got := 1000 / calls[999].at.Seconds(); got < 0.99*rate || got > 1.01*rate || len(trace.Requests) != 1000 {
		t.Errorf("%.1f requests/s, want %.1f; %d in the trace", got, rate, len(trace.Requests))
	}
	one := calls[:1]
	pace(one, rate) // has no span
	if one[0].at != 0 {
		t.Errorf("a single request at %v", one[0].at)
	}
}

func TestReadStream(t *testing.T) {
	start := time.Now().Add(-time.Second)
	for text, want := range map[string]string{
		"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n": "",
		": comment\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n":                                         "",
		"data: {\"choices\":[{\"text\":\"a\"}]}\n\n": "a stream ended early",
		"data: nonsense\n\n":                         "",
	} {
		ttft, err := readStream(strings.NewReader(text), start)
		ok := strings.Contains(text, "[DONE]")
		if ok != (err == nil) || ok != (ttft >= time.Second) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, ttft, err)
		}
	}
}

// Requests are sent at their times, and what comes back is counted by band.
func TestTraffic(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch string(body) {
		case "stream":
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q}]}\n\ndata: [DONE]\n\n", r.Header.Get("X-Session-ID"))
		case "plain":
			io.WriteString(w, `{}`)
		case "bad":
			io.WriteString(w, `{`)
		default:
			http.Error(w, "no room", http.StatusTooManyRequests)
		}
	}))
	defer s.Close()
	var calls []call
	for i, body := range []string{"stream", "plain", "bad", "refused", "stream"} {
		calls = append(calls, call{at: time.Duration(i) * time.Millisecond, path: "/v1/x", session: "s", body: []byte(body), stream: body == "stream", band: chatBand})
	}
	l := newTraffic(calls, s.URL)
	done := make(chan struct{})
	go func() { l.run(t.Context()); close(done) }()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	showProgress(out, l, done)
	if l.served != 3 || l.failed != 2 || len(l.ttft) != 2 || len(l.byBand[chatBand]) != 2 || len(l.errors) != 2 {
		t.Errorf("%+v", l)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil || !strings.Contains(string(text), "5/5 requests, 0 in flight") {
		t.Errorf("progress %q, %v", text, err)
	}
	run := priorityRunOf(l, true)
	if !run.Bands || run.Served != 3 || run.TTFT[chatBand].P50 <= 0 {
		t.Errorf("%+v", run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := newTraffic(calls, s.URL)
	stopped.run(ctx)
	if stopped.served != 0 {
		t.Errorf("%d requests served after the end", stopped.served)
	}
}

func TestFigures(t *testing.T) {
	var d []time.Duration
	for i := range 101 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	if p := percentilesOf(d); p != (Percentiles{50, 90, 99}) {
		t.Errorf("%+v", p)
	}
	if p := percentilesOf(nil); p != (Percentiles{}) {
		t.Errorf("%+v of nothing", p)
	}
	page := "# HELP hits\nhits{a=\"b c\"} 2\nhits 3.5\nhits_total 9\nother 4\n"
	if got := metric(page, "hits"); got != 5.5 {
		t.Errorf("hits %v", got)
	}
	if ratio(1, 0) != 0 || ratio(1, 4) != 0.25 {
		t.Error("ratio")
	}
}

// The JSON of the results has the keys of the contract.
func TestResultKeys(t *testing.T) {
	r := Result{PerReplica: map[string]ReplicaLoad{"r1": {}}, Outcomes: map[string]uint64{"served": 1}}
	b, err := sonic.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"proxy", "version", "policy", "requests", "served", "failed", "decided", "fell_open", "outcomes", "in_flight_after", "ttft_ms", "p50", "p90", "p99", "hit_rate", "per_replica", "prompt_tokens"} {
		if !strings.Contains(string(b), `"`+key+`":`) {
			t.Errorf("no key %s in %s", key, b)
		}
	}
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	printResults(&b, []*Result{{
		Policy: "least_work", Served: 9, Failed: 1, Decided: 8, FellOpen: 2, Outcomes: map[string]uint64{"served": 9, "failed": 1, "died": 0},
		PerReplica: map[string]ReplicaLoad{"r1": {10, 2000, 0.5}}, HitRate: 0.5, Expected: 0.4, TTFT: Percentiles{1, 2, 3}, errors: []string{"an error"},
	}, {Policy: "random"}})
	(&PriorityResult{Proxy: "haproxy", Version: "3.2", Policy: "random", Runs: []PriorityRun{
		{Served: 1, TTFT: map[string]Percentiles{chatBand: {7, 8, 9}}}, {Bands: true, Failed: 1, errors: []string{"late"}},
	}}).print(&b)
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"least_work: served 9, failed 1; decided by the agent 8, balanced by the proxy alone 2 an error",
		"outcomes reported by the feed: failed 1, served 9; still in flight 0", "r1 10 2000 50.0 %",
		"least_work 1 (0) 2 (0) 3 (0) 50.0 % (0.0 %) 40.0 %", "random 0 (0) 0 (0) 0 (0) 0.0 % (0.0 %) -",
		"without bands 7 8 9 0 0 0 1 0", "with bands 0 0 0 0 0 0 0 1 late",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	good := Options{Proxy: HAProxy, Commands: [][]string{{"/nonexistent/proxy"}}, Requests: 20, Replicas: 2, Load: 0.5, Speed: 4, CacheTokens: 40_000,
		JSON: true, Policies: []replay.Policy{{Name: "random", Flow: "random"}}}
	for want, change := range map[string]func(*Options){
		"at least 10 requests": func(o *Options) { o.Requests = 9 },
		"1 to 64 replicas":     func(o *Options) { o.Replicas = 65 },
		"a load up to 2":       func(o *Options) { o.Load = 3 },
		"a speed above 0":      func(o *Options) { o.Speed = 0 },
		"--haproxy is empty":   func(o *Options) { o.Commands = nil },
		"--nginx is empty":     func(o *Options) { o.Proxy, o.Agents = "haproxy,nginx", 2 },
		"2 kinds of proxies need an agent each: --agents 2": func(o *Options) { o.Proxy, o.Commands = "haproxy,nginx", [][]string{{"a"}, {"b"}} },
		"without and with bands; want":                      func(o *Options) { o.Scenario, o.Policies[0].Late = Priorities, true },
		"/nonexistent/proxy does not run":                   func(o *Options) {},
		"does not run":                                      func(o *Options) { o.Scenario = Priorities },
	} {
		o := good
		o.Policies = slices.Clone(good.Policies)
		change(&o)
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if failures(0) != nil || failures(3).Error() != "3 requests failed" {
		t.Error("failures")
	}
}

// script writes a program that prints text, in place of a proxy.
func script(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func TestProxies(t *testing.T) {
	layout := layout{front: "127.0.0.1:1", feed: "127.0.0.1:2", admin: "127.0.0.1:4", folder: t.TempDir(), agent: t.TempDir(), timeout: decisionTimeout,
		pool: templates.Pool{Name: "llama", Models: []string{"demo"}, Replicas: []templates.Replica{{Name: "r1", Address: "127.0.0.1:3"}}}}
	for _, c := range []struct{ name, says, version, file, conf string }{
		{HAProxy, "HAProxy version 3.2.1-1 2025/05/28", "3.2.1", templates.ConfigFile, "runtime_api"},
		{Nginx, "nginx version: nginx/1.26.3", "1.26.3", templates.NginxFile, "spoe: off"},
	} {
		p, err := findProxy(c.name, script(t, "echo "+c.says))
		if err != nil {
			t.Fatal(err)
		}
		if p.version != c.version {
			t.Errorf("%s: version %s", c.name, p.version)
		}
		files, args, conf, err := p.lay(layout)
		if err != nil || !slices.ContainsFunc(files, func(f templates.File) bool { return f.Name == c.file }) || len(args) == 0 || !strings.Contains(conf, c.conf) {
			t.Errorf("%s: %d files, %v, %s, %v", c.name, len(files), args, conf, err)
		}
	}
	if _, err := findProxy(Nginx, script(t, "echo something else")); err == nil {
		t.Error("a program that is no nginx")
	}
}

// A process that ends at its start is reported with what it wrote, and one that
// serves is stopped.
func TestProcesses(t *testing.T) {
	var s stage
	defer s.close()
	if err := s.start("ends", script(t, "echo no licence; exit 1")[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t.Context(), "http://127.0.0.1:1/", "ends"); err == nil || !strings.Contains(err.Error(), "ends ended at its start:\nno licence") {
		t.Error(err)
	}
	if err := s.start("sleeps", script(t, "exec sleep 600")[0]); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, server.URL, "sleeps"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.start("nothing", "/nonexistent/program"); err == nil {
		t.Error("a program that is not there is started")
	}
	var b lockedBuffer
	for range 100 {
		fmt.Fprint(&b, strings.Repeat("x", 1<<10))
	}
	if n := len(b.String()); n > 65<<10 {
		t.Errorf("%d bytes of output are kept", n)
	}
	if portOf("127.0.0.1:77") != "77" {
		t.Error("port")
	}
}
