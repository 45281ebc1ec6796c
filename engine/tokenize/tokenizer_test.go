package tokenize

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/prompt"
	"pointsman/sim/fakevllm"
)

func TestMain(m *testing.M) {
	// fasthttp's caches live as long as the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"))
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

// kvAware is the policy kv_aware with a timeout that tests may change, beyond what a
// configuration may set: a busy machine must not make a call late.
type kvAware struct {
	*policy.KVAware
	options decider.TokenOptions
}

func (k *kvAware) Tokens() *decider.TokenOptions { return &k.options }

// bench is a pool of the policy kv_aware with one engine. It counts the calls of
// /tokenize.
type bench struct {
	policy    decider.Policy
	t         testing.TB
	options   *decider.TokenOptions
	engine    *fakevllm.Server
	decider   *decider.Decider
	tokenizer *Tokenizer
	calls     atomic.Int64
	before    func() // called during each call
	server    *http.Server
	listener  net.Listener
	idling    atomic.Int64 // connections of the server
}

func newBench(t testing.TB, change func(*decider.TokenOptions)) *bench {
	b := &bench{t: t, engine: fakevllm.New(fakevllm.Options{LoRA: []string{"sql"}, Events: "not opened"}), before: func() {}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.serve(l)
	o := decider.TokenDefaults
	if change != nil {
		change(&o)
	}
	aware, err := policy.NewKVAware(o)
	if err != nil {
		t.Fatal(err)
	}
	kv := &kvAware{aware, o}
	kv.options.Timeout = time.Minute
	b.options, b.policy = &kv.options, kv
	b.decider = decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, LoRA: []string{"sql"}, Policy: kv,
		Replicas: []decider.ReplicaConfig{{Name: "r0", Address: l.Addr().String()}},
	}}})
	b.tokenizer = New(metrics.NewSet())
	t.Cleanup(func() {
		b.idle()
		for _, c := range b.tokenizer.clients {
			c.CloseIdleConnections()
		}
		b.server.Close()
		b.engine.Close()
	})
	return b
}

// serve serves the engine over l.
func (b *bench) serve(l net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			b.calls.Add(1)
			b.before()
		}
		b.engine.ServeHTTP(w, r)
	})}
	b.server, b.listener = server, l
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateIdle:
			b.idling.Add(1)
		case http.StateActive:
			b.idling.Add(-1)
		}
	}
	go server.Serve(l)
}

// idle waits until no call is pending.
func (b *bench) idle() {
	until(b.t, "the end of the calls", func() bool {
		b.tokenizer.mu.Lock()
		defer b.tokenizer.mu.Unlock()
		return len(b.tokenizer.calls) == 0
	})
}

// prepare scans a body and prepares its request.
func (b *bench) prepare(path, body string, size int) (*decider.Request, decider.Decision, bool) {
	b.t.Helper()
	var d decider.Decision
	var scan prompt.Body
	scan.Scan([]byte(body), prompt.EndpointOf([]byte(path)), 0)
	r := &decider.Request{Pool: b.decider.Pool("llama"), TextBytes: scan.TextBytes, Cut: !scan.Complete && len(body) < size}
	if string(scan.Model) == "sql" {
		r.LoRA = "sql"
	}
	seed := prompt.Seed(r.Pool.Hashing(), []byte(r.Pool.Name()), []byte(r.LoRA), scan.CacheSalt)
	turns := prompt.Separate(r.Pool.Hashing(), seed, scan.Template+uint64(formOf(path)))
	ok := b.tokenizer.Prepare(r, Prompt{
		Body: []byte(body), Turns: scan.Turns(nil, turns), Seed: seed,
		Form: formOf(path), IDs: scan.TokenIDs > 0,
	}, &d)
	return r, d, ok
}

const (
	chat      = "/v1/chat/completions"
	messages  = "/v1/messages"
	responses = "/v1/responses"
)

func formOf(path string) Form {
	return map[string]Form{chat: Chat, messages: Messages, responses: Responses}[path]
}

func talk(turns ...string) string {
	var list []string
	for i, turn := range turns {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%q}`, role, strings.Repeat(turn+" ", 60)))
	}
	return `{"model":"fake","messages":[` + strings.Join(list, ",") + `]}`
}

// A conversation waits for an engine once. A later turn gets the blocks of the earlier
// one while the engine tokenizes all of it.
func TestTokenizesAConversationOnce(t *testing.T) {
	b := newBench(t, nil)
	first, _, ok := b.prepare(chat, talk("one"), 0)
	if !ok || b.calls.Load() != 1 || len(first.Blocks) == 0 || first.Input < 60 {
		t.Fatalf("%d calls, %d blocks, %d tokens", b.calls.Load(), len(first.Blocks), first.Input)
	}
	again, _, _ := b.prepare(chat, talk("one"), 0)
	if b.calls.Load() != 1 || again.Input != first.Input || fmt.Sprint(again.Blocks) != fmt.Sprint(first.Blocks) {
		t.Errorf("the same prompt again: %d calls, %d blocks, %d tokens", b.calls.Load(), len(again.Blocks), again.Input)
	}
	slow := make(chan struct{})
	b.before = func() { <-slow }
	next, _, _ := b.prepare(chat, talk("one", "two", "three"), 0)
	if fmt.Sprint(next.Blocks) != fmt.Sprint(first.Blocks) {
		t.Errorf("the next turn has %d blocks, the first one %d", len(next.Blocks), len(first.Blocks))
	}
	if n := len(b.tokenizer.calls); n != 1 {
		t.Errorf("%d calls are pending after the next turn, want 1: it waits for none", n)
	}
	close(slow)
	b.idle()
	whole, _, _ := b.prepare(chat, talk("one", "two", "three"), 0)
	// The length of the rest is taken to be like what is known.
	if next.Input < whole.Input*3/4 || next.Input > whole.Input*5/4 {
		t.Errorf("the next turn has %d tokens, %d were assumed", whole.Input, next.Input)
	}
	if b.calls.Load() != 2 || len(whole.Blocks) < 2*len(first.Blocks) || fmt.Sprint(whole.Blocks[:len(first.Blocks)]) != fmt.Sprint(first.Blocks) {
		t.Errorf("the whole of it: %d calls, %d blocks that begin with the %d of the first turn", b.calls.Load(), len(whole.Blocks), len(first.Blocks))
	}
	other, _, _ := b.prepare(chat, strings.Replace(talk("one"), `"fake"`, `"sql"`, 1), 0)
	if len(other.Blocks) != len(first.Blocks) || other.Blocks[0] == first.Blocks[0] {
		t.Error("the prompt of an adapter has the blocks of the model's")
	}
}

// An engine closes connections on which it was asked nothing for a while. No call fails
// for that, however many there were.
func TestConnectionsThatTheEngineHasClosed(t *testing.T) {
	b := newBench(t, nil)
	const at = 4
	all := make(chan struct{})
	var once sync.Once
	b.before = func() {
		if b.calls.Load() >= at {
			once.Do(func() { close(all) })
		}
		<-all
	}
	var requests sync.WaitGroup
	for i := range at {
		requests.Go(func() { b.prepare(chat, talk(fmt.Sprint("one of several ", i)), 0) })
	}
	requests.Wait()
	until(t, "the connections idle", func() bool { return b.idling.Load() == 0 }) // each was new before it was active
	b.server.SetKeepAlivesEnabled(false)
	b.server.SetKeepAlivesEnabled(true)
	if r, _, ok := b.prepare(chat, talk("after a while"), 0); !ok || len(r.Blocks) == 0 {
		t.Error("not tokenized")
	}
	if n := b.tokenizer.failed.Get(); n != 0 {
		t.Errorf("%d calls failed", n)
	}
}

func TestSharesACall(t *testing.T) {
	b := newBench(t, nil)
	slow := make(chan struct{})
	b.before = func() { <-slow }
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if r, _, ok := b.prepare(chat, talk("same"), 0); !ok || len(r.Blocks) == 0 {
				t.Error("not tokenized")
			}
		})
	}
	until(t, "a call", func() bool { return b.calls.Load() > 0 })
	close(slow)
	all.Wait()
	if n := b.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestWithoutTokens(t *testing.T) {
	for _, reject := range []bool{false, true} {
		b := newBench(t, func(o *decider.TokenOptions) {
			if reject {
				o.OnUntokenized = "reject"
			}
		})
		slow := make(chan struct{})
		b.before = func() { <-slow }
		b.options.Timeout = time.Millisecond
		for _, c := range []struct {
			what, path, body string
			size, status     int
		}{
			{"no prompt", chat, `{"model":"fake"}`, 0, 400},
			{"a body that is cut", chat, talk("long")[:300], 5000, 503},
			{"an engine that does not answer", chat, talk("late"), 0, 503},
		} {
			r, d, ok := b.prepare(c.path, c.body, c.size)
			want := c.status
			if !reject {
				want = 0
			}
			if ok != (want == 0) || d.Status != want || len(r.Blocks) != 0 {
				t.Errorf("reject %v, %s: %v %+v, %d blocks", reject, c.what, ok, d, len(r.Blocks))
			}
		}
		close(slow)
		b.idle()
		b.options.Timeout = time.Minute
		if r, _, ok := b.prepare(chat, talk("late"), 0); !ok || len(r.Blocks) == 0 {
			t.Error("tokens that arrived late are lost")
		}
		k := b.tokenizer
		for what, n := range map[string]uint64{"no_prompt": k.empty.Get(), "cut": k.cut.Get(), "late": k.late.Get()} {
			if n != 1 {
				t.Errorf("%s counted %d times", what, n)
			}
		}
		b = newBench(t, func(o *decider.TokenOptions) {
			if reject {
				o.OnUntokenized = "reject"
			}
		})
		k = b.tokenizer
		b.engine.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/fake/fail", strings.NewReader(`{"path":"/tokenize","status":500}`)))
		_, d, ok := b.prepare(chat, talk("failing"), 0)
		if ok == reject || reject && d.Status != 503 || k.failed.Get() != 1 {
			t.Errorf("an engine that fails: %v %+v", ok, d)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c cache
	entry := entry{blocks: make([]uint64, 1000), tokens: 16_000, size: 16}
	for i := range uint64(10_000) {
		c.put(i, entry)
		if i%2 == 0 {
			c.get(0, 16) // which keeps it
		}
	}
	n := (len(c.young) + len(c.old)) * (1000 + entryCost)
	if _, ok := c.get(0, 16); !ok || n > 2*maxCacheBlocks+2000 || n < maxCacheBlocks {
		t.Errorf("%d blocks held, the first entry %v", n, ok)
	}
	if _, ok := c.get(1, 16); ok {
		t.Error("an entry that is never looked up is still there")
	}
}

// Calls are bounded, and a replica without an address is not asked.
func TestCallsAreBounded(t *testing.T) {
	b := newBench(t, nil)
	pool := b.decider.Pool("llama")
	ask := func(i uint64) *call {
		return b.tokenizer.start(&decider.Request{Pool: pool}, Prompt{Body: []byte(talk("x")), Form: Chat, Turns: []uint64{i}}, 16)
	}
	pending := map[uint64]*call{}
	for i := range uint64(maxCalls) {
		pending[i] = &call{done: make(chan struct{})}
	}
	b.tokenizer.calls = pending
	if ask(maxCalls) != nil {
		t.Error("one call more is accepted")
	}
	if ask(0) != pending[0] {
		t.Error("a pending call is not shared")
	}
	delete(pending, 0)
	if ask(maxCalls) == nil {
		t.Error("a call is refused although another has ended")
	}
	b.tokenizer.mu.Lock()
	for i := range uint64(maxCalls) {
		delete(pending, i)
	}
	b.tokenizer.mu.Unlock()
	b.idle()
	b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Models: []string{"fake"}, Policy: &kvAware{KVAware: new(policy.KVAware), options: *b.options}, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	if lists, ok := b.tokenizer.tokenize(pool, "", []byte(talk("nowhere")), Chat); ok || lists != nil {
		t.Errorf("%d prompts from nowhere", len(lists))
	}
}
