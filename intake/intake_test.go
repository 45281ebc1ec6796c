package intake

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/engine/tokenize"
	"pointsman/session"
)

const chat = "/v1/chat/completions"

// body is a chat request for a model with a prompt of about size bytes.
func body(model string, size int) []byte {
	return []byte(`{"model":"` + model + `","stream":true,"max_tokens":7,"n":2,"priority":3,"messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`)
}

// pool is the configuration of a pool of one replica, whose policy compares text.
func pool(name string, models ...string) decider.PoolConfig {
	return decider.PoolConfig{Name: name, Models: models, Policy: policy.LeastWork{}, PolicyName: "least_work", Replicas: replicas(1)}
}

// waiter counts the calls of Decided.
type waiter int

func (w *waiter) Decided() { *w++ }

// A request has what its body and headers say, and an answer.
func TestHandle(t *testing.T) {
	in := newIntake()
	in.Apply(Config{Session: session.NewHeaders([]string{"x-session-id"}), Pools: []decider.PoolConfig{pool("llama", "m")}})
	var r Request
	b := body("m", 4000)
	held := in.Handle(&r, Input{
		ID: []byte("00112233445566778899aabbccddeeff"), Path: []byte(chat), Headers: []byte("X-Session-Id: ann\r\n"),
		Body: b, BodySize: len(b), Exclude: "r7",
	}, nil)
	if held || r.Decision.Server != "r0" || r.Decision.Pool != "llama" {
		t.Fatalf("held %v, %+v", held, r.Decision)
	}
	text := len("user") + 4000
	if r.Model != "m" || !r.HasSession || r.Session != session.Key([]byte("ann")) || !r.Stream || r.Cut || r.Output != 14 || r.Priority != 3 ||
		r.Exclude != "r7" || r.Bytes != len(b) || r.TextBytes != text || r.Input != text/4 || len(r.Blocks) != text/decider.BlockBytes {
		t.Errorf("read as %+v", r.Request)
	}
	if r.ID != decider.ParseID([]byte("00112233-4455-6677-8899-aabbccddeeff")) || !in.Decider().Pool("llama").Holds(r.ID) {
		t.Errorf("%v holds no reservation", r.ID)
	}
}

// Reading and deciding allocate nothing.
func TestHandleDoesNotAllocate(t *testing.T) {
	in := newIntake()
	in.Apply(Config{
		Session: session.NewHeaders([]string{"x-session-id"}), Pools: []decider.PoolConfig{{
			Name: "llama", Models: []string{"m"}, Policy: policy.LeastWork{}, Replicas: replicas(4),
			Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "a"}, {Name: "b"}}},
		}},
		Classes: map[string]Classes{"llama": {
			Tenants: []TenantSource{NewTenantSource("api_key")}, Rules: []Rule{{Band: "a", ByPriority: true, Priority: 1}, {Band: "b"}},
		}},
	})
	r := new(Request)
	input := Input{Path: []byte(chat), Headers: []byte("authorization: Bearer key\r\nx-session-id: ann\r\n"), Body: body("m", 20_000)}
	input.BodySize = len(input.Body)
	server := []byte("r0")
	var w waiter
	n := uint64(0)
	var rid [32]byte
	step := func() {
		n++
		input.ID = hexID(&rid, n)
		if in.Handle(r, input, &w) {
			t.Fatal("held by an idle pool")
		}
		server = append(server[:0], r.Decision.Server...)
		r.Pool.FirstToken(r.ID, server)
		r.Pool.Finished(decider.Outcome{ID: r.ID, Server: server})
	}
	for range 2000 {
		step()
	}
	if a := testing.AllocsPerRun(500, step); a > 0.1 {
		t.Errorf("%v allocations a request", a)
	}
}

// A request that is held is decided later, and one beyond the limits goes to
// the pool that takes what spills, hashed as that compares prompts.
func TestHandleHoldsAndSpills(t *testing.T) {
	in := newIntake()
	one := pool("one", "m")
	one.Limit, one.Admission = 1, &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "a", MaxRequests: 1, Spill: "other"}}}
	in.Apply(Config{Pools: []decider.PoolConfig{one, pool("other", "o")}})
	var w waiter
	list := make([]Request, 4)
	send := func(i int, proxyPool string) bool {
		return in.Handle(&list[i], Input{ID: []byte{byte(i)}, Path: []byte(chat), Pool: []byte(proxyPool), Body: body("m", 3000)}, &w)
	}
	if send(0, "") || !send(1, "") || send(2, "") {
		t.Fatal("want the first decided, the second held, the third spilled")
	}
	spilled := &list[2]
	var same Request
	in.Read(&same, Input{Path: []byte(chat), Pool: []byte("other"), Body: body("m", 3000)})
	if spilled.Decision.Pool != "other" || !slices.Equal(spilled.Blocks, same.Blocks) || slices.Equal(spilled.Blocks, list[0].Blocks) {
		t.Errorf("spilled: %+v, blocks %x, want %x", spilled.Decision, spilled.Blocks, same.Blocks)
	}
	if send(3, "one"); list[3].Decision.Status != 429 {
		t.Errorf("the proxy chose the pool, yet %+v", list[3].Decision)
	}
	in.Decider().Pool("one").Finished(decider.Outcome{ID: list[0].ID, Server: []byte("r0")})
	if w != 1 || list[1].Decision.Server != "r0" {
		t.Errorf("%d calls, %+v", w, list[1].Decision)
	}
}

// The part of a prompt that was not seen is assumed to be like the rest.
func TestTruncatedBodies(t *testing.T) {
	in := newIntake()
	in.Apply(Config{ModelHeader: session.NewHeaders([]string{"x-model"}), Pools: []decider.PoolConfig{pool("a", "x"), pool("b", "y")}})
	b := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}],"model":"y"}`)
	var r Request
	read := func(i Input) {
		t.Helper()
		i.Path, i.BodySize = []byte(chat), len(b)
		if !in.Read(&r, i) {
			t.Fatalf("refused: %+v", r.Decision)
		}
	}
	read(Input{Body: b})
	whole, wholeBlocks := r.Input, len(r.Blocks)
	if r.Cut || r.Pool.Name() != "b" {
		t.Errorf("%+v", r.Request)
	}
	read(Input{Body: b[:len(b)/4]})
	if !r.Cut || r.Pool.Name() != "a" || r.Input < whole*9/10 || r.Input > whole*11/10 || len(r.Blocks) >= wholeBlocks {
		t.Errorf("a quarter of the body: %d tokens of %d, %+v", r.Input, whole, r.Request)
	}
	read(Input{Body: b[:len(b)/4], Headers: []byte("X-Model: y\r\n")})
	if r.Pool.Name() != "b" || r.Model != "y" {
		t.Errorf("the header names y: %+v", r.Request)
	}
	read(Input{Body: b[:len(b)/4], Tail: b[len(b)-100:]})
	if r.Pool.Name() != "b" {
		t.Errorf("the tail names y: %+v", r.Request)
	}
	read(Input{Body: b[:len(b)/4], Model: []byte("y")})
	if r.Pool.Name() != "b" {
		t.Errorf("the proxy names y: %+v", r.Request)
	}
	if s := in.Stats(); s.ModelUnseen != 2 || s.ModelUnknown != 0 {
		t.Errorf("%+v", s)
	}
}

// engine is a tokenizer that gives each prompt n tokens.
func engine(t *testing.T, n int) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tokens := `{"tokens":[1` + strings.Repeat(",2", n-1) + `]}`
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(tokens)) })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// Prompts are tokenized for policies that compare tokens, and refused where the
// policy cannot do without.
func TestPrepare(t *testing.T) {
	o := decider.TokenDefaults
	o.Timeout, o.OnUntokenized = time.Second, "reject"
	policy, err := policy.NewKVAware(o)
	if err != nil {
		t.Fatal(err)
	}
	in := newIntake()
	in.Tokenizer = tokenize.New(metrics.NewSet())
	in.Apply(Config{Pools: []decider.PoolConfig{
		{Name: "exact", Models: []string{"m"}, Policy: policy, Replicas: []decider.ReplicaConfig{{Name: "r0", Address: engine(t, 48)}}},
		pool("text", "o"),
	}})
	var r Request
	prepare := func(path string, b []byte) bool {
		return in.Read(&r, Input{Path: []byte(path), Body: b, BodySize: len(b)}) && in.Prepare(&r)
	}
	if !prepare(chat, body("m", 100)) || r.Input != 48 || len(r.Blocks) != 3 || r.ExactTokens != 48 || r.TextBytes != 0 {
		t.Errorf("%+v", r.Request)
	}
	if prepare(chat, []byte(`{"model":"m"}`)) || r.Decision.Status != http.StatusBadRequest || r.Decision.Why != "untokenized" {
		t.Errorf("without a prompt: %+v", r.Decision)
	}
	if in.Handle(&r, Input{Path: []byte(chat), Body: []byte(`{"model":"m"}`)}, nil) || r.Decision.Status != http.StatusBadRequest {
		t.Errorf("handled without a prompt: %+v", r.Decision)
	}
	if !prepare("/v1/embeddings", []byte(`{"model":"m","input":"text"}`)) || len(r.Blocks) != 0 {
		t.Errorf("another API: %+v, %+v", r.Request, r.Decision)
	}
	if !prepare(chat, body("o", 5000)) || len(r.Blocks) != 4 || r.ExactTokens != 0 {
		t.Errorf("a policy that compares text: %+v", r.Request)
	}
	in.Tokenizer = nil
	if !prepare(chat, body("m", 100)) || len(r.Blocks) != 0 {
		t.Errorf("without a tokenizer: %+v", r.Request)
	}
}

// While the configuration changes, each request finds a pool that is open.
func TestApplyIsAtomic(t *testing.T) {
	in := newIntake()
	configs := []Config{
		{Pools: []decider.PoolConfig{pool("a", "m")}},
		{Pools: []decider.PoolConfig{pool("b", "m")}},
	}
	in.Apply(configs[0])
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			r := new(Request)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !in.Read(r, Input{Path: []byte(chat), Body: body("m", 10)}) {
					t.Error("the model has no pool")
					return
				}
			}
		})
	}
	for i := range 200 {
		in.Apply(configs[(i+1)%2])
		if p := in.Decider().Pools(); len(p) != 1 || p[0].Name() != configs[(i+1)%2].Pools[0].Name {
			t.Fatalf("pools %v", p)
		}
	}
	close(stop)
	all.Wait()
	// A pool that is gone holds nothing.
	var r Request
	in.Apply(configs[0])
	in.Handle(&r, Input{ID: []byte("1"), Path: []byte(chat), Body: body("m", 10)}, nil)
	in.Apply(configs[1])
	if r.Pool.Holds(r.ID) {
		t.Error("a pool that is gone holds a reservation")
	}
}
