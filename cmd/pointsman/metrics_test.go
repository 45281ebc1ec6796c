package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/agent"
	"pointsman/templates"
	"pointsman/test/proxies"
)

// exposed are the metrics of an agent with a pool for each policy and every
// filter on, after one request has come to its end.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "vllm:num_requests_waiting 0\nvllm:num_requests_running 1\n")
	}))
	t.Cleanup(engine.Close)
	var ports []string
	for range 3 {
		ports = append(ports, fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "agent: {zone: a}\nlisten: {spoe: off, feed: %q, admin: %q, nginx: %q}\nhaproxy: {runtime_api: '127.0.0.1:1'}\npools:\n", ports[0], ports[1], ports[2])
	for _, name := range policies.Names() {
		options := ""
		if name == "expression" {
			options = ", formula: in_flight"
		}
		fmt.Fprintf(&b, "  %s: {models: [%[1]s], lora: [lora-%[1]s], policy: {name: %[1]s%s}, locality: true, lora_affinity: true, sticky_sessions: true, admission: {wait: agent}, engine: vllm, replicas: {%[1]s: {address: %[3]q}}}\n",
			name, options, engine.Listener.Addr().String())
	}
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
		names := metricNames(t, "http://"+ports[1]+"/metrics")
		if names["pointsman_ttft_seconds"] && names["pointsman_replica_signal_age_seconds"] {
			return names
		}
		if time.Now().After(deadline) {
			t.Fatalf("the request and the signals are not in the metrics: %v", names)
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

// metricNames are the names of our metrics on a page; the parts of a histogram
// count as one. None while the page cannot be had.
func metricNames(t *testing.T, url string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	resp, err := http.Get(url)
	if err != nil {
		return names
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		m, _, _ := strings.Cut(strings.Fields(lines.Text() + " ")[0], "{")
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if whole := strings.TrimSuffix(m, part); strings.HasSuffix(whole, "_seconds") {
				m = whole
			}
		}
		if strings.HasPrefix(m, "pointsman_") {
			names[m] = true
		}
	}
	return names
}
