package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/decider/policy"
	"pointsman/engine/zmtp"
	"pointsman/prompt"
	"pointsman/sim/fakevllm"
)

// publishers is the variable of the environment that turns the test binary into
// engines that publish KV-cache events. Its value is a publication.
const publishers = "POINTSMAN_TEST_PUBLISHING"

// publication is what each engine publishes: first it fills its cache, then it stores
// 4 blocks with one event and removes 4 older ones with one each, again and again.
type publication struct {
	Engines int
	Blocks  int // in a cache, 4 of each prompt
	Rate    int // events a second
	Batch   int // events in a message
	Seconds int
}

const (
	publishedPrompt = 4 // blocks
	publishedRound  = 1 + publishedPrompt
)

// prompts is the number of prompts that one engine publishes.
func (p publication) prompts() int {
	return p.Blocks/publishedPrompt + p.Rate*p.Seconds/publishedRound
}

// batches is the number of messages that it takes.
func (p publication) batches() uint64 {
	return uint64((p.Blocks/publishedPrompt+p.Rate*p.Seconds-1)/p.Batch) + 1
}

// tokens returns prompt i of an engine.
func (p publication) tokens(engine, i int) []uint32 {
	t := make([]uint32, 16*publishedPrompt)
	for k := range t {
		t[k] = uint32(engine)<<20 + uint32(i)
	}
	return t
}

// event appends event n of an engine to e.
func (p publication) event(e *fakevllm.KVEvents, engine, n int) {
	full := p.Blocks / publishedPrompt
	prompt, part := n, 0
	if n >= full {
		prompt, part = full+(n-full)/publishedRound, (n-full)%publishedRound
	}
	name := func(prompt, block int) uint64 { return uint64(1 + prompt*publishedPrompt + block) }
	if part > 0 {
		e.Removed(name(prompt-full, part-1))
		return
	}
	tokens := p.tokens(engine, prompt)
	for k := range publishedPrompt {
		e.Stored(name(prompt, k), name(prompt, k-1), k == 0, tokens[16*k:16*(k+1)], "", "")
	}
}

// serve publishes to one subscriber.
func (p publication) serve(engine int, c net.Conn) error {
	defer c.Close()
	peer, err := zmtp.NewConn(c, "PUB", 10*time.Second)
	if err != nil {
		return err
	}
	if _, err := peer.Receive(); err != nil { // the subscription
		return err
	}
	e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 16, Keep: 1})
	send := func(from, to int) error {
		for n := from; n < to; n++ {
			p.event(e, engine, n)
		}
		number, payload, _ := e.Batch(0)
		return peer.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, number), payload)
	}
	full := p.Blocks / publishedPrompt
	n, end := 0, full+p.Rate*p.Seconds
	for ; n+p.Batch <= full; n += p.Batch {
		if err := send(n, n+p.Batch); err != nil {
			return err
		}
	}
	pause := time.Second * time.Duration(p.Batch) / time.Duration(p.Rate)
	next := time.Now().Add(time.Second + pause*time.Duration(engine)/time.Duration(p.Engines))
	for ; n < end; n += p.Batch {
		time.Sleep(time.Until(next))
		if err := send(n, min(end, n+p.Batch)); err != nil {
			return err
		}
		next = next.Add(pause)
	}
	_, err = peer.Receive() // none comes: wait until the subscriber disconnects
	return err
}

// servePublishers runs the engines and prints their ports.
func servePublishers(text string) {
	var p publication
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	for i := range p.Engines {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Print(l.Addr().(*net.TCPAddr).Port, " ")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = p.serve(i, c)
			}
		}()
	}
	fmt.Println()
	select {}
}

// follow starts the engines as another process and a Watch that follows them. stop
// ends the Watch.
func (p publication) follow(t testing.TB) (pool *decider.Pool, known *spy, w *Watch, stop func()) {
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	ports := otherProcess(t, publishers+"="+string(text))
	o := PoolOptions{Metrics: "off", Replicas: map[string]EventOptions{}}
	known = &spy{KVAware: kvAware(16)}
	c := decider.PoolConfig{Name: "llama", Models: []string{"fake"}, Policy: known}
	for i, port := range ports {
		name := fmt.Sprintf("r%03d", i)
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		o.Replicas[name] = EventOptions{Port: n}
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: name, Address: "127.0.0.1:" + port, CacheTokens: 16 * 2 * p.Blocks})
	}
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	w = NewWatch(d, vm.NewSet(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	w.Configure(map[string]PoolOptions{"llama": o})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	return d.Pool("llama"), known, w, func() { cancel(); <-done }
}

// arrived is the number of batches that have arrived from all engines.
func arrived(w *Watch) (n uint64) {
	for _, s := range w.Status() {
		if s.Blocks != nil {
			n += s.Blocks.Batches
		}
	}
	return n
}

// check fails unless all batches have arrived and the pool knows their content.
func (p publication) check(t testing.TB, pool *decider.Pool, known *spy, w *Watch) {
	t.Helper()
	for i, s := range w.Status() {
		if b := s.Blocks; b == nil || b.Batches != p.batches() || b.Blocks != p.Blocks || b.Gaps+b.Rebuilt+uint64(b.Orphans)+b.Strange > 0 {
			t.Fatalf("engine %d: %+v, want %d batches and %d blocks", i, b, p.batches(), p.Blocks)
		}
	}
	last := p.prompts()
	for engine := range p.Engines {
		known.replica = engine
		for _, i := range []int{0, last - p.Blocks/publishedPrompt - 1, last - p.Blocks/publishedPrompt, last - 1, last} {
			r := decider.Request{Pool: pool}
			r.Tokenized(kvcache.AppendKeys(nil, pool.Hashing(), prompt.Seed(pool.Hashing(), []byte(pool.Name()), nil, nil), p.tokens(engine, i), 16), 16*publishedPrompt+1)
			var d decider.Decision
			pool.Decide(&r, &d)
			pool.Finished(decider.Outcome{ID: r.ID, End: decider.ClientGone})
			want := 0
			if i >= last-p.Blocks/publishedPrompt && i < last {
				want = 16 * publishedPrompt
			}
			if known.cached != want {
				t.Fatalf("%d tokens of prompt %d of engine %d are believed cached, want %d", known.cached, i, engine, want)
			}
		}
	}
}

// All events of a hundred engines arrive, and the pool knows what each of them has
// cached.
func TestFollowsAHundredEngines(t *testing.T) {
	p := publication{Engines: 100, Blocks: 400, Rate: 500, Batch: 5, Seconds: 2}
	pool, known, w, stop := p.follow(t)
	defer stop()
	until(t, "all events", func() bool { return arrived(w) == uint64(p.Engines)*p.batches() })
	p.check(t, pool, known, w)
}

// BenchmarkFollowing100 measures the share of a core that following 100 engines takes,
// over as many sockets and with 500 events a second each: decoding, keying and
// reporting to the pool. The engines are another process.
func BenchmarkFollowing100(b *testing.B) {
	for _, batch := range []int{25, 5, 1} {
		b.Run(fmt.Sprintf("batches of %d", batch), func(b *testing.B) {
			p := publication{Engines: 100, Blocks: 10_000, Rate: 500, Batch: batch, Seconds: 12}
			for b.Loop() {
				heap := inUse()
				pool, known, w, stop := p.follow(b)
				full := uint64(p.Engines) * uint64(p.Blocks/publishedPrompt/batch)
				until(b, "full caches", func() bool { return arrived(w) > full })
				time.Sleep(time.Second)
				before, from, had := cpu(b), time.Now(), arrived(w)
				time.Sleep(8 * time.Second)
				spent, passed, came := cpu(b)-before, time.Since(from), arrived(w)-had
				b.ReportMetric(100*spent.Seconds()/passed.Seconds(), "%-of-a-core")
				b.ReportMetric(float64(came)*float64(batch)/passed.Seconds(), "events/s")
				until(b, "all events", func() bool { return arrived(w) == uint64(p.Engines)*p.batches() })
				p.check(b, pool, known, w)
				b.ReportMetric(float64(inUse()-heap)/float64(p.Engines*p.Blocks), "B/block")
				runtime.KeepAlive(pool)
				stop()
			}
		})
	}
}

// inUse is the size of the reachable heap in bytes.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// spy records how many tokens of a prompt the pool takes to be cached on a replica.
type spy struct {
	*policy.KVAware
	replica, cached int
}

func (s *spy) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	s.cached = v.Cached(s.replica)
	return dst
}

func kvAware(blockTokens int) *policy.KVAware {
	o := decider.TokenDefaults
	o.BlockTokens = blockTokens
	p, err := policy.NewKVAware(o)
	if err != nil {
		panic(err)
	}
	return p
}
