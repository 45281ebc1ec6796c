package nginx

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"pointsman/decider"
	"pointsman/intake"
	"pointsman/link"
)

// asked is an agent with a client in nginx's place.
type asked struct {
	*Agent
	d      *decider.Decider
	in     *intake.Intake
	l      *fasthttputil.InmemoryListener
	client *fasthttp.HostClient
}

func ask(t testing.TB, o Options) *asked {
	t.Helper()
	if o.Head == 0 {
		o.Head = 1 << 20
	}
	in := newIntake()
	d := in.Decider()
	a := &asked{Agent: NewAgent(in, NewServers(d), &link.Link{}, o, newSet(), silent), d: d, in: in, l: fasthttputil.NewInmemoryListener()}
	served := make(chan error, 1)
	go func() { served <- a.Serve(a.l) }()
	a.client = &fasthttp.HostClient{Addr: "agent", Dial: func(string) (net.Conn, error) { return a.l.Dial() }, MaxIdleConnDuration: time.Minute, MaxConns: 100}
	t.Cleanup(func() {
		a.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := a.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		a.l.Close()
		<-served
	})
	return a
}

// answered is what nginx would go by.
type answered struct {
	status          int
	redirect, where string
	contentType     string
	body            string
}

// post asks as nginx does. Any goroutine may call it.
func (a *asked) post(t testing.TB, body string, headers ...string) answered {
	t.Helper()
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://agent/v1/chat/completions?x=1")
	req.Header.SetMethod("POST")
	req.Header.Set("X-Pointsman-Target", "@pm_target")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "method" {
			req.Header.SetMethod(headers[i+1])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	req.SetBodyString(body)
	if err := a.client.DoTimeout(req, resp, 10*time.Second); err != nil {
		t.Error(err)
		return answered{}
	}
	h := &resp.Header
	return answered{resp.StatusCode(), string(h.Peek("X-Accel-Redirect")), string(h.Peek("X-Pointsman-Server")), string(h.Peek("Content-Type")), string(resp.Body())}
}

const chat = `{"model":"my-llama","messages":[{"role":"user","content":"hello"}]}`

func TestDecision(t *testing.T) {
	a := ask(t, Options{})
	got := a.post(t, chat, "X-Pointsman-Id", rid)
	if got.status != 200 || got.redirect != "@pm_target" || got.where != "pm~llama~r1" || got.body != "" {
		t.Errorf("%+v", got)
	}
	if !a.d.Pool("llama").Holds(decider.ParseID([]byte(rid))) {
		t.Error("nothing was reserved under nginx's id")
	}
	if got := a.post(t, `{"model":"coder"}`, "X-Pointsman-Target", "@pm_last"); got.redirect != "@pm_last" || got.where != "10.0.1.1:8000" && got.where != "pm~code~shared" {
		t.Errorf("a replica by its address: %+v", got)
	}
	if got := a.post(t, `{"model":"coder"}`, "X-Pointsman-Pool", "llama"); !strings.HasPrefix(got.where, "pm~llama~") {
		t.Errorf("with the pool fixed: %+v", got)
	}
	if got := a.post(t, chat, "X-Pointsman-Target", "http://evil"); got.redirect != "@pm_target" {
		t.Errorf("odd target: %+v", got)
	}
}

// What the answer says besides would be taken over into the replica's.
func TestAnswerSaysNothingElse(t *testing.T) {
	a := ask(t, Options{})
	c, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(chat), chat)
	b := make([]byte, 4096)
	n, err := c.Read(b)
	want := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: @pm_target\r\nX-Pointsman-Server: pm~llama~r1\r\n\r\n"
	if err != nil || string(b[:n]) != want {
		t.Errorf("%v, %q", err, b[:n])
	}
}

// What the agent has nothing to say to goes on without a decision.
func TestBalancedByNginx(t *testing.T) {
	a := ask(t, Options{})
	for name, got := range map[string]answered{
		"GET":             a.post(t, "", "method", "GET"),
		"empty":           a.post(t, ""),
		"pool of nothing": a.post(t, `{"model":"none"}`),
	} {
		if got.status != 200 || got.redirect != "@pm_fallback" || got.where != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// With all replicas down, the pool as a whole.
	for _, r := range []string{"r1", "r2", "r3"} {
		a.d.Pool("llama").Checked(r, false)
	}
	if got := a.post(t, chat); got.redirect != "@pm_target" || got.where != "pm~llama" {
		t.Errorf("all down: %+v", got)
	}
}

func TestUnknownModel(t *testing.T) {
	a := ask(t, Options{})
	got := a.post(t, `{"model":"other\"}"}`)
	if got.status != 404 || got.contentType != "application/json" || got.redirect != "" ||
		got.body != `{"error":{"message":"The model 'other?}' does not exist.","type":"invalid_request_error","param":"model","code":"model_not_found"}}` {
		t.Errorf("%+v", got)
	}
}

func TestRefusals(t *testing.T) {
	for status, want := range map[int]string{
		400: `{"type":"error","error":{"type":"invalid_request_error","message":"Busy."}}`,
		404: `{"type":"error","error":{"type":"not_found_error","message":"Busy."}}`,
		429: `{"type":"error","error":{"type":"rate_limit_error","message":"Busy."}}`,
		503: `{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}`,
	} {
		if got := string(appendRefusal(nil, status, "Busy.", true)); got != want {
			t.Errorf("%d: %s", status, got)
		}
	}
	for status, want := range map[int]string{
		429: `{"error":{"message":"Busy.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
		503: `{"error":{"message":"Busy.","type":"server_error","param":null,"code":"service_unavailable"}}`,
	} {
		if got := string(appendRefusal(nil, status, "Busy.", false)); got != want {
			t.Errorf("%d: %s", status, got)
		}
	}
}

// The second question of a request excludes the replica that failed it, charges
// it, and leaves one reservation.
func TestSecondQuestion(t *testing.T) {
	a := ask(t, Options{})
	again := func(tried, failed string) answered {
		return a.post(t, chat, "X-Pointsman-Id", rid, "X-Pointsman-Target", "@pm_last", "X-Pointsman-Exclude", tried, "X-Pointsman-Failed", failed)
	}
	a.post(t, chat, "X-Pointsman-Id", rid)
	got := again("pm~llama~r1", "200 : 502|0.000 : -")
	if got.redirect != "@pm_last" || got.where == "" || got.where == "pm~llama~r1" {
		t.Errorf("%+v", got)
	}
	if s := status(a.d, "llama"); s.Reservations != 1 || s.Stats.Replaced != 0 || replica(a.d, "llama", "r1").InFlight != 0 ||
		replica(a.d, "llama", "r1").Failed != 1 || replica(a.d, "llama", "r1").State != "ejected" {
		t.Errorf("%+v", s)
	}
	// An upstream that nginx does not know was sent nothing.
	if got := again("pm~llama~r2", "200 : |0.000 : "); got.redirect != "@pm_last" {
		t.Errorf("unknown upstream: %+v", got)
	}
	// It may have begun: no other replica gets it, and its reservation stays
	// for the line that says so.
	for failed, status := range map[string]int{"200 : 502|0.000 : 0.001": 502, "200 : 504|0.000 : 0.001": 504} {
		got := again("pm~llama~r3", failed)
		if got.status != status || got.redirect != "" || !strings.Contains(got.body, `"code":"replica_failed"`) {
			t.Errorf("%s: %+v", failed, got)
		}
	}
	if n := status(a.d, "llama").Reservations; n != 1 {
		t.Errorf("%d reservations", n)
	}
	a.Set(Options{Head: 1 << 20, RetrySent: true})
	if got := again("pm~llama~r3", "200 : 504|0.000 : 0.001"); got.status != 504 || got.redirect != "" {
		t.Errorf("one that was not answered in time: %+v", got)
	}
	if got := again("pm~llama~r3", "200 : 502|0.000 : 0.001"); got.redirect != "@pm_last" || replica(a.d, "llama", "r3").Failed != 1 {
		t.Errorf("allowed: %+v", got)
	}
	// One that was balanced by nginx, or is not known any more.
	for _, tried := range []string{"pm~llama", "pm~gone~r1"} {
		if got := again(tried, "200 : 502|0.000 : -"); got.redirect != "@pm_last" {
			t.Errorf("%s: %+v", tried, got)
		}
	}
}

// The agent looks at the head and the tail of a body of any length, and holds
// no more of it.
func TestBodies(t *testing.T) {
	a := ask(t, Options{Head: 4096})
	for _, size := range []int{1, 100, 4095, 4096, 4097, 8192, 70_000, 300_000, 3_000_000} {
		pad := strings.Repeat("x", max(0, size-60))
		for name, body := range map[string]string{
			"model first": fmt.Sprintf(`{"model":"coder","messages":[{"role":"user","content":"%s"}]}`, pad),
			"model last":  fmt.Sprintf(`{"messages":[{"role":"user","content":"%s"}],"model":"coder"}`, pad),
		} {
			if got := a.post(t, body); got.redirect != "@pm_target" || got.where != "10.0.1.1:8000" && got.where != "pm~code~shared" {
				t.Errorf("%d bytes, %s: %+v", size, name, got)
			}
		}
	}
	if n := a.memory.Load(); n != 0 {
		t.Errorf("%d bytes are borrowed at the end", n)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	a := ask(t, Options{Head: 64 << 20})
	var all [8]scratch
	for i := range all {
		if n := a.borrow(&all[i], 64<<20); i < 4 && n != 64<<20 || i >= 4 && n != leastHead {
			t.Errorf("body %d may have %d bytes", i, n)
		}
	}
	for i := range all {
		a.release(&all[i])
	}
	if n := a.memory.Load(); n != 0 || a.clipped.Get() != 4 {
		t.Errorf("%d bytes, %d clipped", n, a.clipped.Get())
	}
}

// With an admission nothing goes around it: what cannot be read is refused.
func TestUnreadableIsRefused(t *testing.T) {
	a := ask(t, Options{RefuseUnreadable: true})
	c, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nX-A: a\x01b\r\nContent-Length: %d\r\n\r\n%s", len(chat), chat)
	b, _ := io.ReadAll(c)
	if s := string(b); !strings.HasPrefix(s, "HTTP/1.1 400 ") || strings.Contains(s, "X-Accel-Redirect") || !strings.Contains(s, `"type":"invalid_request_error"`) {
		t.Errorf("answered %q", s)
	}
}

// Whatever is sent that is no question, the answer lets nginx go on.
func TestUnreadable(t *testing.T) {
	a := ask(t, Options{})
	for name, text := range map[string]string{
		"no HTTP":     "garbage\r\n\r\n",
		"endless":     "POST / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 2*readBuffer),
		"odd length":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
		"broken off":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc",
		"odd chunks":  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"chunks stop": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
	} {
		c, err := a.l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		var answer bytes.Buffer
		var done sync.WaitGroup
		done.Go(func() { answer.ReadFrom(c) })
		c.Write([]byte(text))
		if strings.HasPrefix(name, "broken") || strings.HasSuffix(name, "stop") {
			c.Close() // nginx gives up
		}
		done.Wait()
		c.Close()
		if answer.Len() > 0 && !strings.Contains(answer.String(), "X-Accel-Redirect: @pm_fallback") {
			t.Errorf("%s: answered %q", name, answer.String())
		}
	}
	if got := a.post(t, chat); got.where == "" {
		t.Errorf("afterwards: %+v", got)
	}
	if n := status(a.d, "llama").Reservations; n != 1 {
		t.Errorf("%d reservations, want that of the last request", n)
	}
}

// panicking is a policy with a defect.
type panicking struct{}

func (panicking) Rank(*decider.Request, *decider.View, []int) []int { panic("defect") }

func TestPanicIsNoFailure(t *testing.T) {
	a := ask(t, Options{})
	a.in.Apply(intake.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"my-llama"}, Policy: panicking{}, PolicyName: "panicking", PolicyKey: "panicking",
		Replicas: []decider.ReplicaConfig{{Name: "r1", Address: "10.0.0.1:8000"}, {Name: "r2", Address: "10.0.0.2:8000"}},
	}}})
	if got := a.post(t, chat); got.status != 200 || got.redirect != "@pm_fallback" {
		t.Errorf("%+v", got)
	}
	if a.panics.Get() != 1 {
		t.Errorf("%d panics counted", a.panics.Get())
	}
}

// Connections above the limit are closed, not answered. The limit grows by the
// answers that may be held.
func TestConnectionLimit(t *testing.T) {
	a := ask(t, Options{})
	if n := a.conns.Limit(); n != maxConns {
		t.Errorf("limit %d", n)
	}
	a.conns.SetLimit(1)
	open, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	c, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes were answered", n)
	}
	if s := a.conns.Stats(); s.Refused != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	c.Close()
	a.Set(Options{MostHeld: 1, Head: 1 << 20})
	if n := a.conns.Limit(); n != maxConns+1 {
		t.Errorf("limit %d with one answer held", n)
	}
	if got := a.post(t, chat); got.where == "" || a.conns.Stats().Refused != 1 {
		t.Errorf("%+v, %+v", got, a.conns.Stats())
	}
}

func FuzzAgent(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{\"a\"}"), true)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nX-Pointsman-Exclude: pm~llama~r1\r\nX-Pointsman-Failed: |\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), false)
	a := ask(f, Options{Head: 4096})
	f.Fuzz(func(t *testing.T, text []byte, closes bool) {
		c, err := a.l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		c.Write(text)
		if !closes {
			c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			c.Read(make([]byte, 4096))
		}
		c.Close()
	})
}

func BenchmarkQuestion(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			a := ask(b, Options{})
			body := fmt.Sprintf(`{"model":"my-llama","messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("word ", size/5))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprintf("%032x", i)
				a.post(b, body, "X-Pointsman-Id", id)
				a.d.Pool("llama").Finished(decider.Outcome{ID: decider.ParseID([]byte(id)), Server: []byte("r1")})
			}
		})
	}
}
