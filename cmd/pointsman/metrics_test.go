package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"pointsman/admin/exposition"
	"pointsman/agent"
	"pointsman/templates"
	"pointsman/test/proxies"
)

// exposed is the page of metrics of an agent with a pool for each policy and every
// filter on, after one request has come to its end.
func exposed(t *testing.T) string {
	t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_waiting 0\nvllm:num_requests_running 1\n")
	}))
	t.Cleanup(engine.Close)
	var ports []string
	for range 4 {
		ports = append(ports, fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "agent: {zone: a, state_dir: %q}\nlisten: {spoe: off, feed: %q, admin: %q, nginx: %q}\nhaproxy: {runtime_api: '127.0.0.1:1'}\n", t.TempDir(), ports[0], ports[1], ports[2])
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret of the cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.WriteString("budgets: {limits: {a-key: {by: [api_key], tokens_per_minute: 100}}}\n")
	fmt.Fprintf(&b, "cluster: {name: test, listen: %q, secret_file: %q}\npools:\n", ports[3], secret)
	for _, name := range policies.Names() {
		options := ""
		if name == "expression" {
			options = ", formula: in_flight"
		}
		fmt.Fprintf(&b, "  %s: {models: [%[1]s], lora: [lora-%[1]s], policy: {name: %[1]s%s}, locality: true, lora_affinity: true, sticky_sessions: true, mode: 50%%, admission: {wait: agent}, engine: vllm, replicas: {%[1]s: {address: %[3]q}}}\n",
			name, options, engine.Listener.Addr().String())
	}
	fmt.Fprintf(&b, "  legs: {models: [legs], sidecar: llm-d, replicas: {p: {address: '127.0.0.1:1', role: prefill}, d: {address: %q, role: decode}}}\n", engine.Listener.Addr().String())
	path := filepath.Join(t.TempDir(), "pointsman.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Config: path, Version: "test", Policies: policies, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	report(t, ports[0], policies.Names()[0])

	// The outcome, the signals and the first token arrive one after another.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		page := metricsPage(t, "http://"+ports[1]+"/metrics")
		if strings.Contains(page, "\npointsman_ttft_seconds_count") && strings.Contains(page, "\npointsman_replica_signal_age_seconds{") {
			return page
		}
		if time.Now().After(deadline) {
			t.Fatalf("the request and the signals are not in the metrics:\n%s", page)
		}
	}
}

// report sends the feed's line of a request that a pool's replica has served.
func report(t *testing.T, feed, pool string) {
	t.Helper()
	line := templates.FeedMarker + " ev=close rid=00000000000000000000000000000001 pool=" + pool + " srv=" + pool + " st=200 ts=-- t0=1 tf=2 " + templates.FeedEnd
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", feed)
		if err == nil {
			fmt.Fprintf(c, "%d %s", len(line), line)
			t.Cleanup(func() { c.Close() })
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// metricsPage is the page of metrics, empty while it cannot be had.
func metricsPage(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metricNames are the names of our metrics on a page; the parts of a histogram
// count as one.
func metricNames(page string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok && strings.HasPrefix(name, "pointsman_") {
			names[strings.Fields(name)[0]] = true
		}
	}
	return names
}

// The page of metrics has a text for each, and Prometheus' own linter finds nothing
// to say about it.
func TestMetricsForPrometheus(t *testing.T) {
	page := exposed(t)
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		"# TYPE process_open_fds gauge\nprocess_open_fds ", `pointsman_build_info{version="test",revision="`,
		"# TYPE pointsman_ttft_seconds histogram\n", "# TYPE pointsman_outcomes_total counter\n", "\npointsman_prompt_achievable_cached_tokens_total{",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	described := map[string]bool{}
	for _, f := range exposition.Ours() {
		described[f.Name] = true
	}
	for name := range metricNames(page) {
		if !described[name] {
			t.Errorf("admin/exposition has no text for %s", name)
		}
	}
	t.Run("promtool", func(t *testing.T) {
		cmd := exec.Command(proxies.Promtool(t), "check", "metrics")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	})
}
