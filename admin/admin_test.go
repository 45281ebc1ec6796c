package admin

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/bytedance/sonic"
	"github.com/valyala/fasthttp"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/engine/tokenize"
	"pointsman/intake"
	"pointsman/session"
)

// bench is a server over an in-memory listener, with the pools chat, which holds
// requests, and exact, whose policy refuses prompts without tokens.
type bench struct {
	t      testing.TB
	server *Server
	intake *intake.Intake
	client *fasthttp.HostClient
}

func newBench(t testing.TB) *bench {
	seed := uint64(0)
	in := intake.New(decider.New(func() time.Duration { return time.Second }, func() uint64 { seed++; return seed }))
	o := decider.TokenDefaults
	o.OnUntokenized = "reject"
	exact, err := policy.NewKVAware(o)
	if err != nil {
		t.Fatal(err)
	}
	in.Tokenizer = tokenize.New(metrics.NewSet())
	in.Apply(intake.Config{
		Session: session.NewHeaders([]string{"x-session-id"}),
		Pools: []decider.PoolConfig{
			{
				Name: "chat", Models: []string{"m"}, Policy: policy.LeastWork{}, PolicyName: "least_work", Limit: 1,
				Replicas:  []decider.ReplicaConfig{{Name: "r1", Address: "10.0.0.1:8000"}, {Name: "r2", Address: "10.0.0.2:8000"}},
				Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all", MaxRequests: 1}}, TenantWeights: map[string]int{"ann": 2}},
			},
			{Name: "exact", Models: []string{"x"}, Policy: exact, PolicyName: "kv_aware", Replicas: []decider.ReplicaConfig{{Name: "r1"}}},
			{Name: "sticky", Models: []string{"s"}, Policy: sessions(t), PolicyName: "session", Replicas: []decider.ReplicaConfig{{Name: "r1"}}},
		},
	})
	set := metrics.NewSet()
	set.NewCounter("pointsman_own_total").Add(7)
	b := &bench{t: t, server: New(in, set, "v1.2.3"), intake: in}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(l) }()
	b.client = &fasthttp.HostClient{Addr: "admin", Dial: func(string) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }}
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		if err := b.server.Shutdown(); err != nil {
			t.Error(err)
		}
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return b
}

func sessions(t testing.TB) decider.Policy {
	p, err := policy.NewSession(policy.SessionOptions{Fallbacks: 2})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// do sends a request with headers, each "Name: value", and returns the answer.
func (b *bench) do(method, uri, body string, headers ...string) (status int, text string) {
	b.t.Helper()
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://admin" + uri)
	req.Header.SetMethod(method)
	req.SetBodyString(body)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		req.UseHostHeader = req.UseHostHeader || name == "Host"
	}
	if err := b.client.DoTimeout(req, resp, 5*time.Second); err != nil {
		b.t.Fatalf("%s %s: %v", method, uri, err)
	}
	return resp.StatusCode(), string(resp.Body())
}

// get returns the body of a 200.
func (b *bench) get(uri string) string {
	b.t.Helper()
	status, text := b.do("GET", uri, "")
	if status != fasthttp.StatusOK {
		b.t.Fatalf("GET %s: %d %s", uri, status, text)
	}
	return text
}

// getJSON parses the body of a 200 into v.
func (b *bench) getJSON(uri string, v any) {
	b.t.Helper()
	if err := sonic.UnmarshalString(b.get(uri), v); err != nil {
		b.t.Fatalf("GET %s: %v", uri, err)
	}
}

// request is what a client sends to model, with a body of its own.
func request(model, prompt string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"` + prompt + `"}]}`
}

// waiter is for requests whose answer no test waits for.
type waiter struct{}

func (waiter) Decided() {}

// submit sends n requests to a pool of the agent.
func (b *bench) submit(model string, n int) (list []*intake.Request) {
	for i := range n {
		r := new(intake.Request)
		b.intake.Handle(r, intake.Input{ID: []byte(model + strconv.Itoa(i)), Path: []byte("/v1/chat/completions"), Body: []byte(request(model, "secret words"))}, waiter{})
		list = append(list, r)
	}
	return list
}

func TestPlainPages(t *testing.T) {
	b := newBench(t)
	if text := b.get("/"); !strings.HasPrefix(text, "pointsman v1.2.3\n") || !strings.Contains(text, "POST /debug/explain") {
		t.Errorf("index %q", text)
	}
	if text := b.get("/healthz"); text != "ok\n" {
		t.Errorf("health %q", text)
	}
	if text := b.get("/readyz"); text != "ready\n" {
		t.Errorf("readiness %q", text)
	}
	if status, _ := b.do("HEAD", "/healthz", ""); status != fasthttp.StatusOK {
		t.Errorf("HEAD: %d", status)
	}
	restored := false
	b.server.Restored = func() bool { return restored }
	if status, text := b.do("GET", "/readyz", ""); status != fasthttp.StatusServiceUnavailable || !strings.Contains(text, "waiting for the replicas") {
		t.Errorf("readiness before its memory is there: %d %q", status, text)
	}
	restored = true
	if text := b.get("/readyz"); text != "ready\n" {
		t.Errorf("readiness with its memory: %q", text)
	}
	b.server.Drain()
	if status, text := b.do("GET", "/readyz", ""); status != fasthttp.StatusServiceUnavailable || text != "draining\n" {
		t.Errorf("readiness while it drains: %d %q", status, text)
	}
	if text := b.get("/healthz"); text != "ok\n" {
		t.Errorf("health while it drains: %q", text)
	}
}

func TestWrongRequests(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		method, uri string
		status      int
	}{
		{"GET", "/nothing", fasthttp.StatusNotFound},
		{"POST", "/status", fasthttp.StatusMethodNotAllowed},
		{"DELETE", "/", fasthttp.StatusMethodNotAllowed},
		{"GET", "/debug/explain", fasthttp.StatusMethodNotAllowed},
		{"GET", "/autoscale?pool=none", fasthttp.StatusNotFound},
		{"GET", "/signals", fasthttp.StatusNotFound}, // nothing reports them
		{"GET", "/config", fasthttp.StatusNotFound},
	} {
		if status, text := b.do(c.method, c.uri, ""); status != c.status {
			t.Errorf("%s %s: %d %q, want %d", c.method, c.uri, status, text, c.status)
		}
	}
}

func TestStatus(t *testing.T) {
	b := newBench(t)
	list := b.submit("m", 4)
	list[0].Pool.Finished(decider.Outcome{ID: list[0].ID, Server: []byte(list[0].Decision.Server), End: decider.Failed})
	var s Status
	b.getJSON("/status", &s)
	if s.Version != "v1.2.3" || len(s.Pools) != 3 {
		t.Fatalf("%+v", s)
	}
	p := s.Pools[0]
	if p.Name != "chat" || p.Policy != "least_work" || len(p.Replicas) != 2 || p.Outcomes["failed"] != 1 || p.Decisions != 4 {
		t.Errorf("%+v", p)
	}
	if a := p.Admission; a == nil || !a.Hold || a.Bands[0].Counts[queue.OtherTenants].Refused["queue_full"] != 1 {
		t.Errorf("admission %+v", a)
	}
	if s.Pools[1].Admission != nil {
		t.Errorf("a pool without an admission has %+v", s.Pools[1].Admission)
	}
}

func TestAutoscale(t *testing.T) {
	b := newBench(t)
	b.submit("m", 3)
	var all []decider.Autoscale
	b.getJSON("/autoscale", &all)
	if len(all) != 3 || all[0].Pool != "chat" || all[0].Replicas != 2 || all[0].QueueRequests == 0 {
		t.Errorf("%+v", all)
	}
	var one decider.Autoscale
	b.getJSON("/autoscale?pool=exact", &one)
	if one.Pool != "exact" || one.Replicas != 1 {
		t.Errorf("%+v", one)
	}
}

func TestSignals(t *testing.T) {
	b := newBench(t)
	b.server.Signals = func() any { return map[string]int{"r1": 5} }
	var got map[string]int
	if b.getJSON("/signals", &got); got["r1"] != 5 {
		t.Errorf("%v", got)
	}
	b.server.Signals = func() any { return func() {} } // JSON has no word for it
	if status, text := b.do("GET", "/signals", ""); status != fasthttp.StatusInternalServerError || text == "" {
		t.Errorf("what is not JSON: %d %q", status, text)
	}
}

// The records of the decisions hold no prompt.
func TestDecisions(t *testing.T) {
	b := newBench(t)
	b.submit("m", 2)
	b.submit("s", 1)
	var all, one []decider.Record
	b.getJSON("/debug/decisions", &all)
	b.getJSON("/debug/decisions?pool=sticky", &one)
	if len(all) != 3 || len(one) != 1 || one[0].Pool != "sticky" || one[0].Server != "r1" {
		t.Errorf("%d records, of one pool %+v", len(all), one)
	}
	if text := b.get("/debug/decisions"); strings.Contains(text, "secret") {
		t.Errorf("a prompt is shown: %s", text)
	}
	for _, r := range all {
		if len(r.ID) != 8 {
			t.Errorf("%q is all of an id, by which the request's end can be reported", r.ID)
		}
	}
	var none []decider.Record
	if b.getJSON("/debug/decisions?pool=none", &none); none == nil || len(none) != 0 {
		t.Errorf("of no pool: %v", none)
	}
}

// explain returns the explanation of a body, or of why it is refused.
func (b *bench) explain(uri, body string, headers ...string) (status int, x decider.Explanation, text string) {
	b.t.Helper()
	status, text = b.do("POST", uri, body, append(headers, "Content-Type: application/json; charset=utf-8")...)
	if strings.HasPrefix(text, "{") {
		if err := sonic.UnmarshalString(text, &x); err != nil {
			b.t.Fatal(err)
		}
	}
	return status, x, text
}

func TestExplain(t *testing.T) {
	b := newBench(t)
	const uri = "/debug/explain?path=/v1/chat/completions"
	status, x, _ := b.explain(uri, request("m", "hello"), "X-Session-Id: not the client's", "Explain-X-Session-Id: ann")
	if status != fasthttp.StatusOK || x.Pool != "chat" || x.Server == "" || !x.Session || len(x.Candidates) != 2 || x.Queue == nil || x.Queue.Band != "all" {
		t.Errorf("%d %+v", status, x)
	}
	if _, x, _ = b.explain(uri, request("m", "hello"), "X-Session-Id: not the client's"); x.Session {
		t.Error("a header of the question itself counts")
	}
	if s := b.intake.Decider().Pool("chat").Status(); s.Decisions != 0 || s.Reservations != 0 {
		t.Errorf("an explanation decided: %+v", s)
	}
	if status, _, text := b.explain(uri+"&pool=stikcy", request("m", "hello")); status != fasthttp.StatusNotFound || !strings.Contains(text, `There is no pool \"stikcy\".`) {
		t.Errorf("a pool that is not there: %d %s", status, text)
	}
	if _, x, _ = b.explain(uri+"&pool=sticky", request("m", "hello")); x.Pool != "sticky" {
		t.Errorf("the pool was named: %+v", x)
	}
	for _, c := range []struct {
		model  string
		prompt string
		status int
		why    string
	}{{"none", "hello", 404, "unknown_model"}, {"x", "", 503, "untokenized"}} {
		status, _, text := b.explain(uri, request(c.model, c.prompt))
		var refused struct {
			Status int
			Why    string
			Reason string
		}
		if err := sonic.UnmarshalString(text, &refused); err != nil || status != c.status || refused.Status != status || refused.Why != c.why || refused.Reason == "" {
			t.Errorf("model %s: %d %s", c.model, status, text)
		}
	}
	long := "Explain-X-Long: " + strings.Repeat("x", 3000)
	if status, x, _ := b.explain(uri, request("m", "hello"), long); status != fasthttp.StatusOK || x.Pool != "chat" {
		t.Errorf("a long header: %d %+v", status, x)
	}
}

// Each sample has a name of ours, and labels that the configuration bounds.
func TestMetrics(t *testing.T) {
	b := newBench(t)
	list := b.submit("m", 4)
	chat := list[0].Pool
	chat.Engine("r1").Signals(decider.Signals{KVUsage: .5, Waiting: 1})
	chat.FirstToken(list[0].ID, []byte(list[0].Decision.Server))
	chat.Finished(decider.Outcome{ID: list[0].ID, Server: []byte(list[0].Decision.Server), TTFT: time.Millisecond})
	b.submit("none", 2)
	b.submit("s", 1)
	text := b.get("/metrics")
	for _, want := range []string{
		"pointsman_own_total 7\n",
		"pointsman_model_unknown_total 2\n",
		`pointsman_decisions_total{pool="chat"} 4`,
		`pointsman_outcomes_total{pool="chat",end="served"} 1`,
		`pointsman_shed_total{pool="chat",band="all",tenants="other",reason="queue_full"} 1`,
		`pointsman_held_total{pool="chat",band="all",tenants="ann"} 0`,
		`pointsman_admitted_total{pool="chat",band="all",tenants="other"} 3`,
		`pointsman_wait_seconds_bucket{pool="chat",band="all",tenants="other",le="+Inf"} 3`,
		`pointsman_wait_seconds_count{pool="chat",band="all",tenants="other"} 3`,
		`pointsman_replica_up{pool="chat",replica="r2"} 1`,
		`pointsman_replica_signal_age_seconds{pool="chat",replica="r1"}`,
		`pointsman_session_decisions_total{pool="sticky",`,
		`pointsman_recommended_replicas{pool="chat"}`,
		"process_",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "saturated_replicas{pool=\"exact\"") || strings.Contains(text, `replica_signal_age_seconds{pool="chat",replica="r2"}`) {
		t.Error("a sample of what is not there")
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "process_") || strings.HasPrefix(line, "go_") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.ParseFloat(value, 64); !ok || err != nil || !strings.HasPrefix(name, "pointsman_") {
			t.Errorf("sample %q", line)
		}
	}
}

func TestWithPool(t *testing.T) {
	for in, want := range map[string]string{
		"a_total":           `a_total{pool="p"}`,
		`a_total{rank="x"}`: `a_total{pool="p",rank="x"}`,
	} {
		if got := withPool(in, "p"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
