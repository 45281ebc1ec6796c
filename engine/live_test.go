package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/go-zeromq/zmq4"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/engine/kvevents"
	"pointsman/engine/metrics"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(publishers); text != "" {
		servePublishers(text)
	}
	// fasthttp's caches of time and addresses live as long as the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"),
		// The ZeroMQ library leaves one goroutine of each socket behind.
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*TCPDialer).tcpAddrsClean"))
}

// startEngines runs n fake engines and returns their addresses.
func startEngines(t testing.TB, n int, o fakevllm.Options) []string {
	var addresses []string
	for i := range n {
		own := o
		own.Name = fmt.Sprintf("r%d", i)
		s := fakevllm.New(own)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := s.HTTPServer()
		go server.Serve(l)
		t.Cleanup(func() { server.Close(); s.Close() })
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// listen starts a Watch of one pool with those addresses.
func listen(t testing.TB, addresses []string, o PoolOptions) (*decider.Decider, *Watch) {
	return listenBy(t, policy.LeastWork{}, addresses, o)
}

// listenTokens is listen with a policy that compares tokens.
func listenTokens(t testing.TB, addresses []string, o PoolOptions) (*decider.Decider, *Watch) {
	return listenBy(t, kvAware(16), addresses, o)
}

func listenBy(t testing.TB, policy decider.Policy, addresses []string, o PoolOptions) (*decider.Decider, *Watch) {
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	c := decider.PoolConfig{Name: "llama", Models: []string{"fake"}, LoRA: []string{"sql"}, Policy: policy}
	for i, a := range addresses {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: fmt.Sprintf("r%d", i), Address: a})
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	w := NewWatch(d, vm.NewSet(), slog.New(slog.DiscardHandler))
	w.Configure(map[string]PoolOptions{"llama": o})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return d, w
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 6000 { // a minute
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("timed out waiting for " + what)
}

func post(t testing.TB, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", url, resp.Status, err, b)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}

func TestScrapesARunningEngine(t *testing.T) {
	addresses := startEngines(t, 1, fakevllm.Options{CacheTokens: 64_000, LoRA: []string{"sql"}})
	d, w := listen(t, addresses, PoolOptions{})
	status := func() decider.ReplicaStatus { return d.Pool("llama").Status().Replicas[0] }
	until(t, "the size of the cache", func() bool { return status().CacheTokens == 64_000 })
	until(t, "a status", func() bool { s := w.Status(); return len(s) == 1 && s[0].Engine == "vllm" && s[0].Firsts })
	body := `{"model":"fake","max_tokens":4,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 500) + `"}]}`
	for range 2 {
		post(t, "http://"+addresses[0]+"/v1/chat/completions", body)
	}
	until(t, "prompt tokens and hits", func() bool {
		s := status()
		return s.PromptTokens > 1200 && s.QueryTokens == s.PromptTokens && s.HitTokens > 500
	})
}

// Engines that connect to us are identified by the topic.
func TestFollowsEnginesThatConnect(t *testing.T) {
	port := proxies.FreePorts(t, 2)
	bind := fmt.Sprintf("127.0.0.1:%d", port)
	_, w := listenTokens(t, []string{fmt.Sprintf("127.0.0.1:%d", port+1)}, PoolOptions{Metrics: "off", Events: EventOptions{Bind: bind}})
	blocks := func() kvevents.Status {
		if s := w.Status(); len(s) == 1 && s[0].Blocks != nil {
			return *s[0].Blocks
		}
		return kvevents.Status{}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, topic := range []string{"kv@stranger@m", fmt.Sprintf("kv@127.0.0.1:%d@m", port+1), "r0"} {
		pub := zmq4.NewPub(ctx, zmq4.WithDialerRetry(10*time.Millisecond), zmq4.WithDialerMaxRetries(-1))
		if err := pub.Dial("tcp://" + bind); err != nil {
			t.Fatal(err)
		}
		e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 16})
		e.Stored(1, 0, true, make([]uint32, 16), "", "")
		_, payload, _ := e.Batch(0)
		send := func() { // until the subscription takes effect
			_ = pub.SendMulti(zmq4.NewMsgFrom([]byte(topic), make([]byte, 8), payload))
		}
		if strings.Contains(topic, "stranger") {
			for range 20 {
				send()
				time.Sleep(5 * time.Millisecond)
			}
			if s := blocks(); s.Online != 0 || s.Blocks != 0 {
				t.Errorf("an unknown engine is followed: %+v", s)
			}
		} else {
			until(t, "the block of "+topic, func() bool { send(); return blocks().Blocks == 1 })
		}
		pub.Close()
		until(t, "the engine to be gone", func() bool { return blocks().Online == 0 && blocks().Blocks == 0 })
	}
}

// An adapter that an engine lists is a model of its pool, configured or not. Its
// requests go to the engines that list it.
func TestReportsAdapters(t *testing.T) {
	with := startEngines(t, 1, fakevllm.Options{LoRA: []string{"sql", "listed-only"}, MaxLoRA: 3})
	without := startEngines(t, 1, fakevllm.Options{})
	d, w := listen(t, append(without, with...), PoolOptions{})
	pool := d.Pool("llama")
	r := decider.Request{Pool: pool, LoRA: "listed-only", Input: 1, Output: -1}
	var out decider.Decision
	until(t, "the adapter to be known", func() bool { return slices.Contains(pool.ListedAdapters(), "listed-only") })
	until(t, "r0 to report that it lacks the adapter", func() bool {
		for range 20 {
			if r.Pool.Decide(&r, &out); out.Server != "r1" {
				return false
			}
		}
		return true
	})
	until(t, "how many fit", func() bool { s := w.Status(); return len(s) == 2 && s[1].MaxLoRA == 3 })
}

// publishing runs an engine that publishes at the port events and replays at replay.
func publishing(t testing.TB, l net.Listener, events, replay int, form fakevllm.KVEventsOptions) *fakevllm.Server {
	s := fakevllm.New(fakevllm.Options{
		Name: "r0", CacheTokens: 4096, EventForm: form,
		Events: fmt.Sprintf("tcp://127.0.0.1:%d", events), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", replay),
	})
	if err := s.Publish(); err != nil {
		t.Fatal(err)
	}
	server := s.HTTPServer()
	go server.Serve(l)
	t.Cleanup(func() { server.Close(); s.Close() })
	return s
}

// The index has the blocks that were cached before the subscription, follows those
// that come and go, and starts over when the engine restarts at the same address.
func TestFollowsBlocksOfARunningEngine(t *testing.T) {
	for _, form := range []fakevllm.KVEventsOptions{{}, {Maps: true, ByteHashes: true}, {ZeroParent: true, From1: true}, {Windowed: true}} {
		port := proxies.FreePorts(t, 3)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		start := func() (net.Listener, *fakevllm.Server) {
			l := proxies.Listen(t, address)
			return l, publishing(t, l, port+1, port+2, form)
		}
		l, engine := start()
		ask := func(n int) {
			for i := range n {
				post(t, "http://"+address+"/v1/completions", fmt.Sprintf(`{"model":"fake","max_tokens":20,"prompt":"%d %s"}`, i%7, strings.Repeat(fmt.Sprint("word", i, " "), 60)))
			}
		}
		ask(5) // before anybody listens
		_, w := listenTokens(t, []string{address}, PoolOptions{Kind: metrics.VLLM, Events: EventOptions{Port: port + 1, Replay: port + 2}})
		status := func() kvevents.Status {
			s := w.Status()
			if len(s) == 0 || s[0].Blocks == nil {
				return kvevents.Status{}
			}
			return *s[0].Blocks
		}
		same := func(what string) {
			t.Helper()
			until(t, what, func() bool { return status().Blocks == engine.Stats().CachedBlocks })
			if s := status(); s.Blocks == 0 || s.Orphans > 0 || s.Strange > 0 {
				t.Fatalf("%s: %+v", what, s)
			}
		}
		same("the blocks from before")
		ask(60) // more than the cache holds
		same("the blocks after evictions")
		// Any client may have the blocks reported again that its request reuses.
		for range 5 {
			post(t, "http://"+address+"/v1/completions", `{"model":"fake","max_tokens":20,"vllm_xargs":{"kv_cache_report_mode":"full"},"prompt":"`+strings.Repeat("again and again ", 60)+`"}`)
		}
		ask(60)
		same("the blocks after some were reported again")
		l.Close()
		engine.Close()
		until(t, "the connection to break", func() bool { return status().Online == 0 })
		_, engine = start()
		ask(3)
		until(t, "the new engine's events", func() bool { return status().Online == 1 })
		same("the blocks of the new engine")
		if s := status(); s.Rebuilt == 0 {
			t.Errorf("%+v", s)
		}
	}
}

// An engine that dies, hangs or fails does not affect the others, and the pool still
// decides.
func TestSurvivesFailingEngines(t *testing.T) {
	addresses := startEngines(t, 4, fakevllm.Options{})
	d, w := listen(t, addresses, PoolOptions{Kind: metrics.VLLM})
	until(t, "scrapers", func() bool { return len(w.Status()) == len(addresses) })
	answers := func(i int) uint64 { return w.Status()[i].Answers }
	for i := range addresses {
		until(t, "an answer", func() bool { return answers(i) > 0 })
	}
	post(t, "http://"+addresses[0]+"/fake/fail", `{"path":"/metrics","hang":true}`)
	post(t, "http://"+addresses[1]+"/fake/fail", `{"path":"/metrics","status":503}`)
	post(t, "http://"+addresses[2]+"/fake/fail", `{"path":"/metrics","die_after":0}`)
	for i := range 3 {
		until(t, "a failure", func() bool { return w.Status()[i].Error != "" })
	}
	before := answers(3)
	p := d.Pool("llama")
	var out decider.Decision
	for i := range 100 {
		req := decider.Request{ID: decider.ID{byte(i)}, Pool: p, Input: 10, Output: -1}
		if p.Decide(&req, &out); out.Server == "" {
			t.Fatal("no decision")
		}
	}
	until(t, "scrapes of the healthy engine", func() bool { return answers(3) > before+5 })
	for i := range 3 {
		post(t, "http://"+addresses[i]+"/fake/reset", "")
	}
	for i := range 3 {
		failing := answers(i)
		until(t, "an engine that has recovered", func() bool { return answers(i) > failing })
	}
}

// otherProcess runs the test binary with a variable of the environment, and returns
// the words of the first line that it prints.
func otherProcess(t testing.TB, variable string) []string {
	p := exec.Command(os.Args[0], "-test.run", "^$")
	p.Env = append(os.Environ(), variable)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)
}

// cpu is the CPU time of this process.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
