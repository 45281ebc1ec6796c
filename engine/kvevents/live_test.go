package kvevents

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"pointsman/decider/kvcache"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/engine/tokenize"
	"pointsman/intake"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

func TestMain(m *testing.M) {
	// fasthttp's caches live as long as the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"))
}

// greeting is what a publisher sends at first.
const greeting = "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x00NULL" + zeros48 + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"

const zeros48 = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// newPool returns a pool of one replica.
func newPool(policy decider.Policy) *decider.Pool {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	return d.Pool("llama")
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

// post sends a request and reads the answer. Any goroutine may call it.
func post(t testing.TB, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %v\n%s", url, resp.Status, err, b)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Connections are bounded, and each that ends makes room for another.
func TestPublishersAreBounded(t *testing.T) {
	most := maxPublishers
	defer func() { maxPublishers = most }() // after the listener has ended
	maxPublishers = 2
	bind := fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t))
	l := Listener{Address: bind, Log: slog.New(slog.DiscardHandler), Find: func(string) (*Index, string) { return nil, "" }}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	taken := func() net.Conn { // nil when it is closed at once
		c, err := net.Dial("tcp", bind)
		if err != nil {
			return nil
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write([]byte(greeting))
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

// Batches and replays are lost, and the engine restarts. The index never has a block
// that the engine has not, and has all of them once a replay has succeeded.
func TestFollowsBlocksThroughLosses(t *testing.T) {
	port := proxies.FreePorts(t, 3)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	var batches, replays atomic.Int32 // one of so many is lost; 0 = none
	var count atomic.Int32
	lost := func(of *atomic.Int32) bool {
		n := of.Load()
		return n > 0 && count.Add(1)%n == 0
	}
	start := func() (*fakevllm.Server, func()) {
		l := proxies.Listen(t, address)
		s := fakevllm.New(fakevllm.Options{
			Name: "r0", CacheTokens: 4096, Speed: 40,
			Events: fmt.Sprintf("tcp://127.0.0.1:%d", port+1), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", port+2),
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
	pool := newPool(kvAware(16))
	image := NewIndex(t.Context(), pool, "r0", 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		image.Follow(ctx, fmt.Sprintf("127.0.0.1:%d", port+1), fmt.Sprintf("127.0.0.1:%d", port+2), func(string, error) {})
	}()
	defer func() { cancel(); <-done }()
	until(t, "the engine to be followed", func() bool { return image.Status().Online == 1 })
	keys := func(r *rankIndex) map[uint64]bool {
		r.index.mu.Lock()
		defer r.index.mu.Unlock()
		out := map[uint64]bool{}
		r.table.keys(func(key uint64, _ kvcache.Tier) { out[key] = true })
		return out
	}
	rank := image.ranks[0]
	there := func() map[uint64]bool { // by all that the engine has published
		r := NewIndex(t.Context(), pool, "r0", 16).newRank("")
		for i, p := range engine.Batches() {
			if err := r.applyLive(uint64(i), p); err != nil {
				t.Fatal(err)
			}
		}
		if n := engine.Stats().CachedBlocks; r.table.liveBlocks != n {
			t.Fatalf("%d blocks from the events, the engine has %d", r.table.liveBlocks, n)
		}
		return keys(r)
	}
	same := func(what string) {
		t.Helper()
		ask(1) // shows whether the last batches were lost
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
		until(t, "the connection to break", func() bool { return image.Status().Online == 0 })
		engine, stop = start()
		until(t, "the new engine to be followed", func() bool { return image.Status().Online == 1 })
		ask(5)
		replays.Store(0)
		same("the blocks of the new engine")
	}
	if s := image.Status(); s.Gaps == 0 || s.Rebuilt == 0 {
		t.Errorf("nothing was lost: %+v", s)
	}
}

// The keys of a prompt are those of the blocks that the engine publishes.
func TestTokensMatchTheEvents(t *testing.T) {
	engine := fakevllm.New(fakevllm.Options{LoRA: []string{"sql"}, Events: "not opened"})
	defer engine.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := engine.HTTPServer()
	go server.Serve(l)
	defer server.Close()
	o := decider.TokenDefaults
	o.Timeout = time.Second
	policy, err := policy.NewKVAware(o)
	if err != nil {
		t.Fatal(err)
	}
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	requests := intake.New(d)
	requests.Tokenizer = tokenize.New(metrics.NewSet())
	requests.Apply(intake.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, LoRA: []string{"sql"}, Policy: policy,
		Replicas: []decider.ReplicaConfig{{Name: "r0", Address: l.Addr().String()}},
	}}})
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"fake","messages":[` + strings.Repeat(`{"role":"user","content":"alpha beta gamma"},{"role":"assistant","content":"delta"},`, 30) + `{"role":"user","content":"end"}]}`},
		{"/v1/completions", `{"model":"fake","prompt":"` + strings.Repeat("plain words ", 50) + `"}`},
		{"/v1/chat/completions", `{"tools":[{"type":"function","function":{"name":"f"}}],"cache_salt":"tenant","model":"sql","messages":[{"role":"user","content":"` + strings.Repeat("é ", 90) + `"}]}`},
	} {
		var r intake.Request
		until(t, "the tokens of "+c.path, func() bool { // what comes too late is remembered for the next question
			r = intake.Request{}
			return requests.Read(&r, intake.Input{Path: []byte(c.path), Body: []byte(c.body)}) && requests.Prepare(&r) && len(r.Blocks) >= 5
		})
		m := NewIndex(t.Context(), r.Pool, "r0", 16)
		rank := m.newRank("")
		post(t, "http://"+r.Pool.Members()[0].Address+c.path, c.body)
		for i, p := range engine.Batches() {
			if err := rank.applyLive(uint64(i), p); err != nil {
				t.Fatal(err)
			}
		}
		have := map[uint64]bool{}
		rank.table.keys(func(k uint64, _ kvcache.Tier) { have[k] = true })
		for i, k := range r.Blocks {
			if !have[k] {
				t.Errorf("%.60s: block %d of %d is none of the %d that the engine published", c.body, i, len(r.Blocks), len(have))
				break
			}
		}
	}
}
