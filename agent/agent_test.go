package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/spoa"
	"pointsman/test/proxies"
)

var policies = policy.Table{
	policy.Plain("least_work", func() decider.Policy { return policy.LeastWork{} }),
	policy.Plain("round_robin", func() decider.Policy { return &policy.RoundRobin{} }),
}

// site is an agent with a configuration of its own.
type site struct {
	*Agent
	t   *testing.T
	log strings.Builder // what it logs; read it only after its goroutines ended
}

const onePool = "pools: {llama: {models: [m], replicas: {r1: {address: '127.0.0.1:1'}}}}\n"

func newSite(t *testing.T, text string) *site {
	t.Helper()
	s := &site{t: t}
	path := filepath.Join(t.TempDir(), "pointsman.yaml")
	s.Agent = &Agent{Options: Options{Config: path}}
	s.write(text)
	a, err := New(Options{Config: path, Version: "test", Policies: policies, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.Agent = a
	t.Cleanup(s.stop)
	return s
}

func (s *site) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.Config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// logged returns what was logged since the last call.
func (s *site) logged() string {
	text := s.log.String()
	s.log.Reset()
	return text
}

func TestReload(t *testing.T) {
	s := newSite(t, onePool)
	if s.engines.MaybeReplaced == nil {
		t.Error("the tokenizer is not notified of engines that have restarted")
	}
	s.write("lease: 1m\n" + strings.Replace(onePool, "llama", "qwen", 1) + "  \n")
	s.reload()
	if log := s.logged(); !strings.Contains(log, "msg=reloaded") {
		t.Errorf("logged %s", log)
	}
	if pools := s.decider.Pools(); len(pools) != 1 || pools[0].Name() != "qwen" {
		t.Errorf("pools %v", pools)
	}
	s.write("pools: {qwen: {models: [m], max_requests: 1, admission: {wait: agent, bands: {a: {max_requests: 70}}}, replicas: {r1: {address: '127.0.0.1:1'}}}}")
	s.reload()
	if n := maxConns(s.conf); n != spoa.DefaultMaxConns+70 {
		t.Errorf("%d connections for 70 requests that are held", n)
	}
}

// A reload that is refused changes nothing and says why.
func TestReloadRefused(t *testing.T) {
	s := newSite(t, onePool)
	before := s.conf
	for text, want := range map[string]string{
		"listen: {spoe: 'unix:///run/x.sock'}\nhaproxy: {poll: 1s}\n" + onePool: "these need a restart: listen.spoe, haproxy.poll",
		"pools: {}": "want at least one pool",
		"haproxy: {version: 2.6}\npools: {llama: {admission: {}, replicas: {r1: {address: 'h:1'}}}}": "which needs max_requests",
		strings.Replace(onePool, "models", "policy: nonsense, models", 1):                            "want least_work or round_robin",
	} {
		s.write(text)
		s.reload()
		log := s.logged()
		if !strings.Contains(log, "reload refused, the old configuration stays") || !strings.Contains(log, want) {
			t.Errorf("%s: logged %s", text, log)
		}
		if s.conf != before || len(s.decider.Pools()) != 1 || s.decider.Pools()[0].Name() != "llama" {
			t.Errorf("%s: was applied", text)
		}
	}
	if _, err := New(Options{Config: s.Config + ".absent", Policies: policies}); err == nil {
		t.Error("runs without a file")
	}
}

// Replicas from a file are those of their pool, for as long as the configuration
// has the file.
func TestReplicasFromAFile(t *testing.T) {
	targets := filepath.Join(t.TempDir(), "targets.json")
	if err := os.WriteFile(targets, []byte(`[{"targets": ["[::1]:8000"], "labels": {"zone": "z", "weight": "3"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "pools: {llama: {models: [m], discover: {file: " + targets + "}}}\n"
	s := newSite(t, text)
	if _, ok := s.sources.members("llama"); ok {
		t.Error("replicas are known before the file was read")
	}
	s.watch()
	s.discovered(t.Context(), <-s.sources.found)
	members, ok := s.sources.members("llama")
	if !ok || fmt.Sprint(members) != "[{::1:8000 [::1]:8000 3}]" {
		t.Errorf("%v, %v", members, ok)
	}
	if st := s.decider.Pool("llama").Status(); len(st.Replicas) != 1 || st.Replicas[0].Name != "::1:8000" {
		t.Errorf("%+v", st.Replicas)
	}
	if err := os.WriteFile(targets, []byte(`[{"targets": ["10.0.0.1:1"], "labels": {"role": "decode"}}, {"targets": ["10.0.0.2:1"], "labels": {"role": "prefill"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "models: [m]", "models: [m], sidecar: llm-d", 1)
	s.write(text)
	s.reload()
	if _, ok := s.sources.members("llama"); ok {
		t.Error("replicas of a source without roles stay, where there are some")
	}
	s.discovered(t.Context(), <-s.sources.found)
	if members, _ := s.sources.members("llama"); fmt.Sprint(members) != "[{10.0.0.1:1 10.0.0.1:1 0}]" {
		t.Errorf("HAProxy gets %v, and shall get those alone that generate", members)
	}
	if st := s.decider.Pool("llama").Status(); len(st.Replicas) != 2 || st.Replicas[1].Role != "prefill" || st.Replicas[0].Role != "decode" {
		t.Errorf("%+v", st.Replicas)
	}
	watchers := len(s.watchers)
	s.write("lease: 1m\n" + text)
	s.reload()
	if _, ok := s.sources.members("llama"); !ok || len(s.watchers) != watchers {
		t.Error("a reload forgets the replicas, or their watcher")
	}
	s.write(onePool)
	s.reload()
	if _, ok := s.sources.members("llama"); ok || len(s.watchers) != 0 {
		t.Errorf("replicas of a file that is not configured any more; %d watchers", len(s.watchers))
	}
	s.discovered(t.Context(), found{pool: "llama"}) // a list has no source
	if st := s.decider.Pool("llama").Status(); len(st.Replicas) != 1 || st.Replicas[0].Name != "r1" {
		t.Errorf("%+v", st.Replicas)
	}
}

// A running agent serves all its sockets, and ends with its context.
func TestRun(t *testing.T) {
	dir, err := os.MkdirTemp("", "pm") // a short path, as sockets need
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	admin := fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t))
	s := newSite(t, fmt.Sprintf("listen: {spoe: 'unix://%s/spoe.sock', nginx: 'unix://%[1]s/nginx.sock', feed: '127.0.0.1:%d', admin: %q}\n", dir, proxies.FreePort(t), admin)+
		"pools: {llama: {models: [m], health: {poll: 1s}, admission: {wait: agent, response_headers: true}, replicas: {r1: {address: '127.0.0.1:1'}}}}\n")
	s.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	ready := func() bool {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}
	for deadline := time.Now().Add(30 * time.Second); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the admin endpoint is not ready")
		}
	}
	for _, name := range []string{"spoe.sock", "nginx.sock"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An agent that cannot open a socket ends with an error that names it, and serves no other.
func TestRunWithoutSocket(t *testing.T) {
	for listen, want := range map[string]string{
		"spoe: 'unix:///nonexistent/spoe.sock', feed: off, admin: off": "listen.spoe: ",
		fmt.Sprintf("spoe: off, nginx: 'unix:///nonexistent/nginx.sock', feed: '127.0.0.1:%d', admin: '127.0.0.1:%d'",
			proxies.FreePort(t), proxies.FreePort(t)): "listen.nginx: ",
	} {
		s := newSite(t, "listen: {"+listen+"}\n"+onePool)
		var log strings.Builder
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		if strings.Contains(log.String(), "msg=listening") {
			t.Errorf("%s: some sockets were served:\n%s", want, &log)
		}
	}
}

func TestLogger(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "8:1")
	for level, debug := range map[string]bool{"debug": true, "info": false, "nonsense": false} {
		if NewLogger(level, false).Enabled(t.Context(), slog.LevelDebug) != debug {
			t.Errorf("level %s", level)
		}
	}
	if a := withoutTime(nil, slog.Time(slog.TimeKey, time.Now())); a.Key != "" {
		t.Errorf("the journal gets %v", a)
	}
	if a := withoutTime([]string{"group"}, slog.Time(slog.TimeKey, time.Now())); a.Key == "" {
		t.Error("a time in a group is dropped")
	}
}

// Each process keys the hashes of prompts with a secret of its own.
func TestSecret(t *testing.T) {
	if a, b := secret(nil), secret(nil); len(a) != 16 || string(a) == string(b) {
		t.Errorf("%x and %x", a, b)
	}
}
