package client

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bytedance/sonic"

	"pointsman/engine"
	"pointsman/engine/kvevents"
	"pointsman/engine/metrics"
)

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00117729: "0.001177", 9.5e-10: "≈0", -9.5e-5: "≈0", 11.0015: "11", 999.96: "1000", 10000: "10000", -123456.7: "-123457"} {
		if got := figure(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

// serve answers as an agent would, by path.
func serve(t *testing.T, answers map[string]string) Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			text = strings.NewReplacer("BODY", string(body), "PATH", r.URL.Query().Get("path"), "SESSION", r.Header.Get("Explain-X-Session-Id")).Replace(text)
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return Client(s.Listener.Addr().String())
}

// An agent is asked over a unix socket too.
func TestClientOverUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
		fmt.Fprintf(w, `{"version": %q, "why": "asked"}`, said)
	})}
	go s.Serve(l)
	defer s.Close()
	c := Client("unix://" + path)
	if b, err := c.Status(); err != nil || !strings.Contains(string(b), `"GET /status "`) {
		t.Errorf("%s %v", b, err)
	}
	if b, err := c.Explain("/v1/x", "", nil, nil); err != nil || !strings.Contains(string(b), `"POST /debug/explain application/json"`) {
		t.Errorf("%s %v", b, err)
	}
}

func TestClient(t *testing.T) {
	c := serve(t, map[string]string{"/status": `{"version":"v1"}`, "/debug/explain": `{"why": "BODY PATH SESSION"}`})
	if b, err := c.Status(); err != nil || string(b) != `{"version":"v1"}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := c.Signals(); err == nil || err.Error() != "no such page" {
		t.Errorf("%v", err)
	}
	if b, err := c.Explain("/v1/x?y", "", []string{"X-Session-ID:  s1 "}, []byte("text")); err != nil || string(b) != `{"why": "text /v1/x?y s1"}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := c.Explain("/", "a&b", []string{"nonsense"}, nil); err == nil || !strings.Contains(err.Error(), `header "nonsense": want 'name: value'`) {
		t.Errorf("%v", err)
	}
	if _, err := Client("127.0.0.1:1").Status(); err == nil || !strings.Contains(err.Error(), "is the agent running") {
		t.Errorf("%v", err)
	}
}

// Each line of what is printed has the words that are wanted, in their order.
func checkLines(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

func TestPrintStatus(t *testing.T) {
	var b strings.Builder
	err := PrintStatus(&b, []byte(`{"version": "v1", "runtime_api_problem": "HAProxy's runtime API does not answer: permission denied", "state": {"dir": "/var/lib/pointsman", "age_s": 12, "bytes": 1700000, "write_failures": 2,
 "restored": {"ago_s": 185, "age_s": 0.3, "blocks": 900, "sessions": 7, "requests": 5, "waiting": 1}}, "proxies": [{"proxy": "haproxy", "version": "3.2.1", "connected": true, "questions": 12, "questions_per_s": 1.5, "feed_age_s": -1,
 "unreported": 3, "unanswered": 2, "mismatches": 1, "bypassed": {"fe": 7}, "problem": "the feed is not connected"}], "pools": [
{"name": "llama", "policy": "least_work", "models": ["m", "n"], "reservations": 3,
 "replicas": [{"name": "r1", "address": "h:1", "state": "up", "seen": true, "weight": 2, "in_flight": 3, "waiting": 1, "tokens": 90, "chosen": 7, "served": 5, "failed": 1},
              {"name": "r2", "state": "ejected", "ejected_for_s": 4}, {"name": "r3", "state": "up", "passed_over": 20}, {"name": "r4", "state": "down", "passed_over": 99}, {"name": "r5", "state": "up", "passed_over": 19}],
 "admission": {"hold": true, "saturated": 1, "expected_wait_s": 2.5, "bands": [{"name": "chat", "queued": 4, "tokens": 50, "oldest_s": 1.5,
  "counts": {"other": {"held": 6, "bound": 2, "wait_s": 3, "shed": {"queue_full": 8}}}}]}},
{"name": "empty", "policy": "random", "admission": {"awaits_replica": true}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, b.String(), "pointsman v1", "state in /var/lib/pointsman: 1.7 MB, written 12s ago, 2 writes failed; restored 3m5s ago, then 300ms old: 900 blocks, 7 sessions, 5 requests, 1 pool waits for its replicas", "pool llama, least_work: m, n, 3 in flight", "r1 h:1 up 2 3 1 90 7 5 1", "r2 ejected 4s 0", "r3 unknown 0",
		"haproxy 3.2.1 yes 12 1.5 never 3 2 1 7", "haproxy: the feed is not connected", "7 requests of frontend fe reached a pool without a question",
		"waiting in the agent, 1 replica without capacity, expected wait of the last band 2.5s", "chat other 4 50 1.5s 6 2 1.50s 8 0 0 0 0",
		"pool empty, random: any model, 0 in flight", "waiting in the proxy, until a replica is up", "no replicas: none in the configuration")
	checkLines(t, b.String(), "HAProxy's runtime API does not answer: permission denied", "r3: the proxy gave the last 20 requests that were decided for it to others")
	if n := strings.Count(b.String(), "to others"); n != 1 {
		t.Errorf("%d replicas that are passed over:\n%s", n, b.String())
	}
	if err := PrintStatus(&b, []byte("nonsense")); err == nil {
		t.Error("nonsense is printed")
	}
}

func TestPrintSignals(t *testing.T) {
	var b strings.Builder
	list := []engine.Status{
		{Status: metrics.Status{Pool: "llama", Replica: "r1", Engine: "vllm", Age: 0.2, Waiting: 3, Running: 8, KVUsage: 0.5, HitRate: 0.25, Cache: 4096, Firsts: true, Adapters: "a"}, Blocks: &kvevents.Status{Online: 1, Blocks: 77}},
		{Status: metrics.Status{Pool: "llama", Replica: "r2", Age: -1, HitRate: -1, Address: "h:2", Path: "/metrics", Error: "refused"}, Blocks: &kvevents.Status{}},
		{Status: metrics.Status{Pool: "llama", Replica: "r3", HitRate: -1}, Blocks: &kvevents.Status{Online: 1, Blocks: 5, Orphans: 4, Strange: 2, Overfull: 1}},
	}
	answer, err := sonic.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := PrintSignals(&b, answer); err != nil {
		t.Fatal(err)
	}
	checkLines(t, b.String(), "llama r1 vllm 0.2 s", "3 8 50 % 4096 counted 25.0 % 77 a", "llama r2 - -", "offline", "5, 4 orphans, 2 strange, overfull 1 time", "llama/r2: http://h:2/metrics: refused")
	if err := PrintSignals(&b, []byte("nonsense")); err == nil {
		t.Error("nonsense is printed")
	}
}

func TestPrintExplanation(t *testing.T) {
	for answer, want := range map[string][]string{
		`{"status": 404, "reason": "no such model"}`:                         {"refused with 404: no such model"},
		`{"status": 404, "reason": "no such model", "why": "unknown_model"}`: {"refused with 404: no such model No pool lists this model.", "--pool"},
		`{"pool": "llama", "policy": "least_work", "model": "m", "input_tokens": 12, "output_tokens": 5, "session": true, "stream": true, "cut": true, "server": "r2", "fallbacks": ["r1"],
 "candidates": [{"replica": "r3", "excluded": "down"}, {"replica": "r4"}, {"replica": "r1", "rank": 2, "terms": {"load": 0.5}}, {"replica": "r2", "rank": 1, "in_flight": 3, "signal_age_s": 0.25, "cached_tokens": 512, "terms": {"load": 1234.5, "cached": 0}}],
 "queue": {"band": "chat", "class": "other", "ahead": 2, "expected_wait_s": 1.5, "deadline_s": 9}}`: {
			"pool llama, policy least_work request: about 12 prompt tokens, at most 5 output tokens, model m, streamed, with a session, truncated decision: r2, then r1, the proxy's own balancing",
			"queue: band chat,", "2 ahead",
			"1 r2 3 0.2 s ago 512 0 1234 2 r1 0 never - 0.5 - r4 0 never - - r3 0 never - down"},
		`{"output_tokens": -1, "why": "none", "refused_with": 503}`:               {"about 0 prompt tokens decision: none (none), refused with 503"},
		`{"output_tokens": -1, "why": "none"}`:                                    {"decision: none (none), the proxy balances by itself"},
		`{"output_tokens": -1, "why": "none", "queue": {"awaits_replica": true}}`: {"decision: none (none), held until a replica is up"},
	} {
		var b strings.Builder
		if err := PrintExplanation(&b, []byte(answer)); err != nil {
			t.Error(err)
		}
		checkLines(t, b.String(), want...)
	}
	if err := PrintExplanation(io.Discard, []byte("nonsense")); err == nil {
		t.Error("nonsense is printed")
	}
}

// What is wrong with an address is said with what to write.
func TestWrongAddress(t *testing.T) {
	for address, want := range map[string]string{
		"https://127.0.0.1:1":        "speaks http, without TLS: write http://host:port",
		"ftp://127.0.0.1:1":          `admin address "ftp://127.0.0.1:1": want host:port`,
		"":                           `admin address "": want host:port`,
		"127.0.0.1:99999":            "want host:port",
		"unix://":                    "want host:port, http://host:port or unix:///path",
		"unix:///nowhere/admin.sock": "is the agent running",
		"http://127.0.0.1:1/":        "is the agent running",
	} {
		if _, err := Client(address).Status(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
