package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/go-zeromq/zmq4"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/sim/fakevllm"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(quietEngines); kind != "" {
		serveQuiet(kind)
	}
	if text := os.Getenv(publishers); text != "" {
		servePublishers(text)
	}
	// fasthttp's caches of time and addresses live as long as the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"),
		// The fake engine's: its library lets one of each socket go on.
		goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*TCPDialer).tcpAddrsClean"))
}

// startEngines runs n fake engines on loopback and returns their addresses.
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

// listen starts a Watch over one pool of those addresses.
func listen(t testing.TB, addresses []string, o PoolOptions) (*decider.Decider, *Watch) {
	return listenBy(t, decider.LeastWork{}, addresses, o)
}

// listenTokens is listen with a pool whose policy looks at tokens.
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
	w := NewWatch(d, metrics.NewSet(), slog.New(slog.DiscardHandler))
	w.Configure(map[string]PoolOptions{"llama": o})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return d, w
}

// until polls a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("in vain: " + what)
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

func TestListensToARunningEngine(t *testing.T) {
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

// Engines that connect by themselves say in the topic who they are.
func TestTakesInEnginesThatConnect(t *testing.T) {
	ports := freePorts(t, 2)
	bind := fmt.Sprintf("127.0.0.1:%d", ports[0])
	_, w := listenTokens(t, []string{fmt.Sprintf("127.0.0.1:%d", ports[1])}, PoolOptions{Metrics: "off", Events: EventOptions{Bind: bind}})
	blocks := func() BlockStatus {
		if s := w.Status(); len(s) == 1 && s[0].Blocks != nil {
			return *s[0].Blocks
		}
		return BlockStatus{}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, topic := range []string{"kv@stranger@m", fmt.Sprintf("kv@127.0.0.1:%d@m", ports[1]), "r0"} {
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
				t.Errorf("a stranger was listened to: %+v", s)
			}
		} else {
			until(t, "the block of "+topic, func() bool { send(); return blocks().Blocks == 1 })
		}
		pub.Close()
		until(t, "the engine to be gone", func() bool { return blocks().Online == 0 && blocks().Blocks == 0 })
	}
}

// Connections that say nothing are bounded, and a new one is taken in when one
// of them ends.
func TestPublishersAreBounded(t *testing.T) {
	most := maxPublishers
	t.Cleanup(func() { maxPublishers = most }) // after the Watch has ended
	maxPublishers = 2
	bind := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	listenTokens(t, []string{"127.0.0.1:1"}, PoolOptions{Metrics: "off", Events: EventOptions{Bind: bind}})
	taken := func() net.Conn { // nil when it is closed at once
		c, err := net.Dial("tcp", bind)
		if err != nil {
			return nil
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write(greeting())
		if _, err := io.ReadFull(c, make([]byte, 64+27)); err != nil {
			c.Close()
			return nil
		}
		return c
	}
	var first net.Conn
	until(t, "the listener", func() bool { first = taken(); return first != nil })
	second := taken()
	if second == nil {
		t.Fatal("a second connection is not taken in")
	}
	defer second.Close()
	if c := taken(); c != nil {
		t.Error("a third connection is taken in")
		c.Close()
	}
	first.Close()
	until(t, "a place", func() bool {
		c := taken()
		if c != nil {
			c.Close()
		}
		return c != nil
	})
}

// An adapter that an engine lists is a model of its pool, whether configured or
// not, and goes to the engines that list it.
func TestListsTheAdaptersOfEngines(t *testing.T) {
	with := startEngines(t, 1, fakevllm.Options{LoRA: []string{"sql", "listed-only"}, MaxLoRA: 3})
	without := startEngines(t, 1, fakevllm.Options{})
	d, w := listen(t, append(without, with...), PoolOptions{})
	in := decider.Input{Path: []byte("/v1/completions"), Body: []byte(`{"model":"listed-only","prompt":"x"}`)}
	var r decider.Request
	var out decider.Decision
	until(t, "the adapter to be known", func() bool { return d.Read(&r, in, &out) })
	if r.LoRA != "listed-only" || r.Pool != d.Pool("llama") {
		t.Fatalf("%+v", r)
	}
	until(t, "r0 to tell that it lacks the adapter", func() bool {
		for range 20 {
			if r.Pool.Decide(&r, &out); out.Server != "r1" {
				return false
			}
		}
		return true
	})
	until(t, "how many fit", func() bool { s := w.Status(); return len(s) == 2 && s[1].MaxLoRA == 3 })
}

// freePorts returns n ports on loopback that nobody listens on.
func freePorts(t testing.TB, n int) (ports []int) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at once, so that no port comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// publishing runs an engine that publishes on events and answers on replay.
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

// Over real sockets: what the engine has at first, what comes and goes, and an
// engine that is started anew behind the same address.
func TestFollowsBlocksOfARunningEngine(t *testing.T) {
	for _, form := range []fakevllm.KVEventsOptions{{}, {Maps: true, ByteHashes: true}} {
		ports := freePorts(t, 3)
		address := fmt.Sprintf("127.0.0.1:%d", ports[0])
		start := func() (net.Listener, *fakevllm.Server) {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			return l, publishing(t, l, ports[1], ports[2], form)
		}
		l, engine := start()
		ask := func(n int) {
			for i := range n {
				post(t, "http://"+address+"/v1/completions", fmt.Sprintf(`{"model":"fake","max_tokens":20,"prompt":"%d %s"}`, i%7, strings.Repeat(fmt.Sprint("word", i, " "), 60)))
			}
		}
		ask(5) // before anybody listens
		_, w := listenTokens(t, []string{address}, PoolOptions{Kind: VLLM, Events: EventOptions{Port: ports[1], Replay: ports[2]}})
		status := func() BlockStatus {
			s := w.Status()
			if len(s) == 0 || s[0].Blocks == nil {
				return BlockStatus{}
			}
			return *s[0].Blocks
		}
		same := func(what string) {
			t.Helper()
			until(t, what, func() bool { return status().Blocks == engine.Stats().StoredBlocks })
			if s := status(); s.Blocks == 0 || s.Orphans > 0 || s.Strange > 0 {
				t.Fatalf("%s: %+v", what, s)
			}
		}
		same("the blocks from before")
		ask(60) // more than the cache holds
		same("the blocks after evictions")
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

// Over real sockets and in real time: batches and replays are lost, the engine
// starts anew, and what is believed is never more than what is there, and all
// of it once a replay has come through.
func TestFollowsBlocksThroughLosses(t *testing.T) {
	ports := freePorts(t, 3)
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	var batches, replays atomic.Int32 // one of so many is lost; 0 = none
	lost := func(of *atomic.Int32) bool {
		n := of.Load()
		return n > 0 && rand.Int32N(n) == 0
	}
	start := func() (*fakevllm.Server, func()) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s := fakevllm.New(fakevllm.Options{
			Name: "r0", CacheTokens: 4096, Speed: 40,
			Events: fmt.Sprintf("tcp://127.0.0.1:%d", ports[1]), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", ports[2]),
			LoseBatch:  func(uint64) bool { return lost(&batches) },
			LoseReplay: func() bool { return lost(&replays) },
		})
		if err := s.Publish(); err != nil {
			t.Fatal(err)
		}
		server := s.HTTPServer()
		go server.Serve(l)
		stop := sync.OnceFunc(func() { server.Close(); s.Close() })
		t.Cleanup(stop)
		return s, stop
	}
	asked := 0
	ask := func(n int) {
		var all sync.WaitGroup
		for range n {
			asked++
			words := strings.Repeat(fmt.Sprint("word", asked%17, " "), 60) + strings.Repeat(fmt.Sprint("and", asked, " "), 20)
			all.Go(func() {
				post(t, "http://"+address+"/v1/completions", `{"model":"fake","max_tokens":20,"prompt":"`+words+`"}`)
			})
			if asked%3 == 0 {
				all.Wait()
			}
		}
		all.Wait()
	}
	engine, stop := start()
	d, w := listenTokens(t, []string{address}, PoolOptions{Kind: VLLM, Metrics: "off", Events: EventOptions{Port: ports[1], Replay: ports[2]}})
	var image *blockImage
	until(t, "the engine to be followed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range w.images {
			image = m
		}
		return image != nil && image.status().Online == 1
	})
	keys := func(r *blockRank) map[uint64]bool {
		r.of.mu.Lock()
		defer r.of.mu.Unlock()
		out := map[uint64]bool{}
		r.table.keys(func(key uint64) { out[key] = true })
		return out
	}
	rank := image.ranks[0]
	there := func() map[uint64]bool { // by all that the engine has published
		r := (&blockImage{pool: d.Pool("llama"), replica: "r0", blockTokens: 16}).newRank()
		for i, p := range engine.Batches() {
			if err := r.take(uint64(i), p); err != nil {
				t.Fatal(err)
			}
		}
		if n := engine.Stats().StoredBlocks; r.table.known != n {
			t.Fatalf("the engine has told of %d blocks, and has %d", r.table.known, n)
		}
		return keys(r)
	}
	same := func(what string) {
		t.Helper()
		ask(1) // tells whether the last batches were lost
		until(t, what, func() bool { return maps.Equal(keys(rank), there()) })
	}
	same("the first blocks")
	for range 3 {
		batches.Store(5)
		replays.Store(2)
		ask(30)
		batches.Store(0)
		replays.Store(0)
		same("the blocks after losses")
		batches.Store(5)
		replays.Store(1)
		ask(20)
		batches.Store(0)
		ask(1)
		until(t, "the last batch", func() bool { // what there is but for what was lost
			known, all := keys(rank), there()
			for key := range known {
				if !all[key] {
					return false
				}
			}
			return len(known) > 0
		})
		stop()
		until(t, "the connection to break", func() bool { return image.status().Online == 0 })
		engine, stop = start()
		until(t, "the new engine to be followed", func() bool { return image.status().Online == 1 })
		ask(5)
		replays.Store(0)
		same("the blocks of the new engine")
	}
	if s := image.status(); s.Gaps == 0 || s.Rebuilt == 0 {
		t.Errorf("nothing was lost: %+v", s)
	}
}

// An engine that dies, hangs or turns to nonsense costs the others nothing,
// and the pool goes on by its own count.
func TestEnginesMayFailAsTheyLike(t *testing.T) {
	addresses := startEngines(t, 4, fakevllm.Options{})
	d, w := listen(t, addresses, PoolOptions{Kind: VLLM})
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
	until(t, "the one that is well to go on", func() bool { return answers(3) > before+5 })
	for i := range 3 {
		post(t, "http://"+addresses[i]+"/fake/reset", "")
	}
	for i := range 3 {
		failing := answers(i)
		until(t, "an engine that is well again", func() bool { return answers(i) > failing })
	}
}

// A scrape, from the request to what the pool is told, allocates nothing.
func TestAScrapeDoesNotAllocate(t *testing.T) {
	page := largePage(8)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // a server that allocates nothing either
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n", len(page)), page...)
		buf := make([]byte, 4096)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}()
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: decider.LeastWork{}, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	s := newScraper(d.Pool("llama"), "r0", l.Addr().String(), PoolOptions{}, newHTTPFetcher(l.Addr().String()), newReport(metrics.NewSet(), slog.New(slog.DiscardHandler)))
	n := testing.AllocsPerRun(200, func() { once(s) })
	if s.failures > 0 || !s.seen {
		t.Fatalf("%+v", s.status())
	}
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	s.fetch.close()
	l.Close()
	<-done
}

// BenchmarkListening tells what share of a core following 64 engines takes, in
// the program and in the kernel, without what the engines themselves take: they
// are another process. Requests wait at all of them, or they have nothing to do.
func BenchmarkListening(b *testing.B) {
	for _, name := range []string{"waiting", "large", "idle"} {
		b.Run(name, func(b *testing.B) {
			addresses := otherProcess(b, quietEngines+"="+name)
			for b.Loop() {
				_, w := listen(b, addresses, PoolOptions{Kind: VLLM})
				time.Sleep(2 * time.Second)
				before, from, asked := cpu(b), time.Now(), answered(w)
				time.Sleep(10 * time.Second)
				spent, passed := cpu(b)-before, time.Since(from)
				b.ReportMetric(100*spent.Seconds()/passed.Seconds(), "%-of-a-core")
				b.ReportMetric(float64(answered(w)-asked)/passed.Seconds(), "scrapes/s")
				for _, s := range w.Status() {
					if s.Failures > 0 || s.Answers == 0 {
						b.Fatalf("%+v", s)
					}
				}
			}
		})
	}
}

// quietEngines makes the test binary 64 engines, for benchmarks, that show pages
// of the kind it names.
const quietEngines = "POINTSMAN_TEST_QUIET_ENGINES"

// otherProcess runs the test binary with a variable of the environment that makes
// it something else, and returns the words of the first line that it prints.
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

func answered(w *Watch) (n uint64) {
	for _, s := range w.Status() {
		n += s.Answers
	}
	return n
}

// quietPage is what each of the engines for benchmarks shows.
func quietPage(kind string) []byte {
	if kind == "large" { // with a busy vLLM's histograms
		return largePage(1)
	}
	s := fakevllm.New(fakevllm.Options{Name: "quiet", LoRA: []string{"sql"}})
	defer s.Close()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	page := w.Body.Bytes()
	if kind == "waiting" {
		lines := bytes.SplitAfter(page, []byte("\n"))
		for i, line := range lines {
			if bytes.HasPrefix(line, []byte("vllm:num_requests_waiting{")) {
				lines[i] = append(bytes.TrimSuffix(line, []byte("0\n")), "3\n"...)
			}
		}
		page = bytes.Join(lines, nil)
	}
	return page
}

// serveQuiet runs 64 servers that always send the same page, and prints their
// addresses.
func serveQuiet(kind string) {
	page := quietPage(kind)
	answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n", len(page)), page...)
	for range 64 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Print(l.Addr(), " ")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					buf := make([]byte, 4096)
					for {
						if _, err := c.Read(buf); err != nil {
							return
						}
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}()
			}
		}()
	}
	fmt.Println()
	select {}
}

// cpu is the time that this process has computed.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
