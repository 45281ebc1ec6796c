package tracing

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/intake"
)

// receiver is a collector by the official messages.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	names map[string]string // of the resource
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{names: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := io.Reader(q.Body)
		if q.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		text, err := io.ReadAll(body)
		var m collect.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(text, &m) != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %v: %v", q.URL.Path, q.Header, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range m.ResourceSpans {
			for _, a := range rs.GetResource().GetAttributes() {
				r.names[a.Key] = a.Value.GetStringValue()
			}
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

// attributes of a span, as text.
func attributes(s *otlp.Span) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		m[a.Key] = a.Value.GetStringValue()
		if m[a.Key] == "" {
			m[a.Key] = a.Value.String()
		}
	}
	return m
}

func newIntake(t testing.TB) *intake.Intake {
	t.Helper()
	start := time.Now()
	in := intake.New(decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 }))
	in.Apply(intake.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"m"}, Policy: policy.LeastWork{}, PolicyName: "least_work",
		Replicas: []decider.ReplicaConfig{{Name: "r1", Weight: 1}, {Name: "r2", Weight: 1}},
	}}})
	return in
}

func tracer(t testing.TB, endpoint string, sample float64) (*Tracer, *Counts) {
	t.Helper()
	counts := NewCounts(metrics.NewSet())
	tr, err := Start(Options{Endpoint: endpoint, Sample: sample, Version: "1.2.3"}, counts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tr, counts
}

func ask(in *intake.Intake, r *intake.Request, id byte, model, headers string) {
	body := []byte(`{"model":"` + model + `","stream":true,"max_tokens":7,"messages":[{"role":"user","content":"Hello, who is there?"}]}`)
	in.Handle(r, intake.Input{ID: []byte{id}, Path: []byte("/v1/chat/completions"), Headers: []byte(headers), Body: body, BodySize: len(body)}, nil)
	in.Answered(r, "haproxy")
}

// Spans reach a collector, as children of the request's own span where it names one.
func TestSpans(t *testing.T) {
	c := newReceiver(t)
	in := newIntake(t)
	tr, counts := tracer(t, c.URL, 1)
	in.SetTracer(tr)
	var r intake.Request
	ask(in, &r, 1, "m", "Host: x\r\nTraceparent: "+header+"\r\n")
	ask(in, &r, 2, "m", "")
	ask(in, &r, 3, "secret words", "")
	ask(in, &r, 4, "m", "traceparent: "+strings.Replace(header, "-01", "-00", 1)+"\r\n") // is not sampled
	tr.Stop()
	if len(c.spans) != 3 || counts.sent.Get() != 3 || counts.dropped.Get() != 0 || counts.failed.Get() != 0 {
		t.Fatalf("%d spans; sent %d, dropped %d, failed %d", len(c.spans), counts.sent.Get(), counts.dropped.Get(), counts.failed.Get())
	}
	if c.names["service.name"] != "pointsman" || c.names["service.version"] != "1.2.3" {
		t.Errorf("%v", c.names)
	}
	child, root, refused := c.spans[0], c.spans[1], c.spans[2]
	if hex.EncodeToString(child.TraceId) != header[3:35] || hex.EncodeToString(child.ParentSpanId) != header[36:52] {
		t.Errorf("a child of %x in %x", child.ParentSpanId, child.TraceId)
	}
	if len(root.ParentSpanId) != 0 || string(root.TraceId) == string(child.TraceId) {
		t.Errorf("%v", root)
	}
	for _, s := range c.spans {
		if took := s.EndTimeUnixNano - s.StartTimeUnixNano; s.EndTimeUnixNano < s.StartTimeUnixNano || took > uint64(10*time.Second) || time.Since(time.Unix(0, int64(s.StartTimeUnixNano))) > time.Minute {
			t.Errorf("from %d to %d", s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
		if strings.Contains(s.String(), "secret words") || strings.Contains(s.String(), "Hello") {
			t.Errorf("what a client wrote is in the span: %v", s)
		}
	}
	got := attributes(child)
	for key, want := range map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "pointsman.pool": "llama", "pointsman.proxy": "haproxy"} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if child.Name != "route m" || got["pointsman.replica"] == "" || got["pointsman.why"] == "" || !strings.Contains(got["gen_ai.request.max_tokens"], "7") {
		t.Errorf("%s %v", child.Name, got)
	}
	if got := attributes(refused); refused.Name != "route" || refused.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.Contains(got["http.response.status_code"], "404") || got["error.type"] != "unknown_model" {
		t.Errorf("%v", refused)
	}
}

// Of requests without a traceparent a share is traced.
func TestSample(t *testing.T) {
	tr := &Tracer{sample: share(0.25)}
	n := 0
	for range 40_000 {
		if tr.Begin(nil) != nil {
			n++
		}
	}
	if n < 9_000 || n > 11_000 {
		t.Errorf("%d of 40,000", n)
	}
	for f, want := range map[float64]uint64{0: 0, -1: 0, 1: 1<<64 - 1, 0.5: 1 << 63} {
		if share(f) != want {
			t.Errorf("%v: %x", f, share(f))
		}
	}
}

// A collector that hangs holds nothing up: what does not fit is dropped and counted.
func TestCollectorHangs(t *testing.T) {
	stop := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer c.Close()
	defer close(stop)
	in := newIntake(t)
	tr, counts := tracer(t, c.URL, 1)
	in.SetTracer(tr)
	var r intake.Request
	for i := range 4 * queueSize {
		ask(in, &r, byte(i), "m", "")
	}
	if counts.dropped.Get() == 0 {
		t.Error("nothing was dropped")
	}
	begin := time.Now()
	tr.Stop()
	if took := time.Since(begin); took > 4*lastTimeout {
		t.Errorf("the end took %v", took)
	}
	if all := counts.sent.Get() + counts.dropped.Get() + counts.failed.Get(); all != 4*queueSize || counts.sent.Get() != 0 {
		t.Errorf("sent %d, dropped %d, failed %d", counts.sent.Get(), counts.dropped.Get(), counts.failed.Get())
	}
}

// Clients that ask for each of their requests to be traced get a thousand a second.
func TestRateIsBounded(t *testing.T) {
	tr := &Tracer{}
	n := 0
	for second := int64(100); second < 103; second++ {
		for range 5 * mostASecond {
			if tr.allowed(second) {
				n++
			}
		}
	}
	if n != 3*mostASecond {
		t.Errorf("%d in three seconds", n)
	}
}

// Without a tracer, and of a request that it does not trace, nothing is allocated.
func TestNoAllocation(t *testing.T) {
	in := newIntake(t)
	var r intake.Request
	measure := func() float64 {
		for range 2000 {
			ask2(in, &r) // until what is kept of speeds and caches has its size
		}
		return testing.AllocsPerRun(200, func() {
			ask2(in, &r)
		})
	}
	off := measure()
	tr, _ := tracer(t, "http://127.0.0.1:9", 0)
	in.SetTracer(tr)
	idle := measure()
	in.SetTracer(nil)
	tr.Stop()
	if off != 0 || idle != 0 {
		t.Errorf("%v allocations without a tracer, %v for requests that it leaves out", off, idle)
	}
}

var (
	id, path = []byte("0123456789abcdef0123456789abcdef"), []byte("/v1/chat/completions")
	raw      = []byte("Host: x\r\nUser-Agent: y\r\nContent-Type: application/json\r\n")
	servers  = map[string][]byte{"r1": []byte("r1"), "r2": []byte("r2")}
	body     = []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello, who is there?"}]}`)
)

func ask2(in *intake.Intake, r *intake.Request) {
	in.Handle(r, intake.Input{ID: id, Path: path, Headers: raw, Body: body, BodySize: len(body)}, nil)
	in.Answered(r, "haproxy")
	r.Pool.Finished(decider.Outcome{ID: r.ID, Server: servers[r.Decision.Server]})
}

// BenchmarkHandle is a decision without a tracer, with one that leaves the request out,
// and with one that traces it.
func BenchmarkHandle(b *testing.B) {
	c := newReceiver(b)
	for name, sample := range map[string]float64{"off": -1, "left-out": 0, "traced": 1} {
		b.Run(name, func(b *testing.B) {
			in := newIntake(b)
			if sample >= 0 {
				tr, _ := tracer(b, c.URL, sample)
				in.SetTracer(tr)
				defer tr.Stop()
			}
			var r intake.Request
			b.ReportAllocs()
			for b.Loop() {
				ask2(in, &r)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	c := newReceiver(t)
	if err := Probe(c.URL, 5*time.Second); err != nil {
		t.Error(err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, endpoint := range []string{other.URL, "http://127.0.0.1:1", "ftp://x", "x"} {
		if Probe(endpoint, 5*time.Second) == nil {
			t.Errorf("%s takes spans", endpoint)
		}
	}
}
