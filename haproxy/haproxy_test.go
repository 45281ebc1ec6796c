package haproxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/link"
	"pointsman/test/inject"
)

var rules inject.Rules

func TestMain(m *testing.M) { goleak.VerifyTestMain(inject.Tested{M: m, Rules: &rules}) }

const (
	rid  = "2f3b0a1c-9d5e-4f60-8a7b-1c2d3e4f5a6b"
	rest = " tw=0 tc=0 tr=1 ta=5 B=1200 sq=0 bq=0 err=- dec=r1 PM."
)

func TestLineOutcome(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		end          decider.End
		server       string
		redispatched bool
		ttft         time.Duration
	}{
		{"served", "srv=r1 st=200 ts=-- rc=0 t0=1000000 tf=1300000", decider.Served, "r1", false, 300 * time.Millisecond},
		{"refused by the engine with 400", "srv=r1 st=400 ts=-- rc=0", decider.Served, "r1", false, 0},
		{"left before the answer", "srv=r1 st=0 ts=-- rc=0", decider.ClientGone, "r1", false, 0},
		{"failed by the engine", "srv=r1 st=500 ts=-- rc=0", decider.Failed, "r1", false, 0},
		{"redispatched", "srv=r2 st=200 ts=-- rc=+1", decider.Served, "r2", true, 0},
		{"client left in the queue", "srv=<NOSRV> st=0 ts=CQ rc=0", decider.ClientGone, "", false, 0},
		{"client left in mid-stream", "srv=r1 st=200 ts=CD rc=0", decider.ClientGone, "r1", false, 0},
		{"client silent", "srv=r1 st=200 ts=cD rc=0", decider.ClientGone, "r1", false, 0},
		{"connection refused", "srv=r1 st=503 ts=SC rc=2", decider.Refused, "r1", false, 0},
		{"no connection in time", "srv=r1 st=503 ts=sC rc=2", decider.Refused, "r1", false, 0},
		{"died before its headers", "srv=r1 st=502 ts=SH rc=0", decider.Died, "r1", false, 0},
		{"died in mid-stream", "srv=r1 st=200 ts=SD rc=0", decider.Died, "r1", false, 0},
		{"silent for too long", "srv=r1 st=504 ts=sH rc=0", decider.TimedOut, "r1", false, 0},
		{"waited in the queue for too long", "srv=r1 st=503 ts=sQ rc=0", decider.TimedOut, "", false, 0},
		{"answer is no HTTP", "srv=r1 st=502 ts=PH rc=0", decider.Died, "r1", false, 0},
		{"denied", "srv=<NOSRV> st=429 ts=PR rc=0", decider.Denied, "", false, 0},
		{"answered by the proxy", "srv=<NOSRV> st=404 ts=LR rc=0", decider.Denied, "", false, 0},
		{"marked down in mid-stream", "srv=r1 st=200 ts=DD rc=0", decider.Died, "r1", false, 0},
		{"clock went back", "srv=r1 st=200 ts=-- t0=5 tf=3", decider.Served, "r1", false, 0},
		{"no numbers", "srv=r1 st=- ts=-- t0=- tf=99999999999999999999", decider.Served, "r1", false, 0},
	} {
		l, ok := parse([]byte("PM1 ev=close rid=" + rid + " pool=llama " + c.fields + rest + " 10.0.0.1 - \"POST /v1/x\""))
		if !ok {
			t.Errorf("%s: not parsed", c.name)
			continue
		}
		o := l.outcome()
		if o.End != c.end || string(o.Server) != c.server || o.Redispatched != c.redispatched || o.TTFT != c.ttft {
			t.Errorf("%s: %v by %q, redispatched %v, ttft %v; want %v by %q, %v, %v", c.name,
				o.End, o.Server, o.Redispatched, o.TTFT, c.end, c.server, c.redispatched, c.ttft)
		}
		if o.ID.String() != rid {
			t.Errorf("%s: id %v", c.name, o.ID)
		}
	}
}

func TestLineIgnoresWhatIsNotOurs(t *testing.T) {
	for _, s := range []string{"", "PM1", "PM1 ", "GET / 200", "PM1 ev=close pool=web srv=w rid=", "PM1 ev=close rid=- srv=x PM.", "PM1 ev=close rid=" + rid + " srv=r1 ts=SD", "x PM1 ev=close rid=" + rid + " srv=r1 PM."} {
		if _, ok := parse([]byte(s)); ok {
			t.Errorf("%q was taken for one of ours", s)
		}
	}
}

// A client can put anything into what the user's own format logs after our fields,
// and make it so long that HAProxy cuts the line.
func TestLineCannotBeForged(t *testing.T) {
	const forged = `"POST /v1/PM1 ev=first rid=forged srv=evil pool=x ts=SD PM." PM1 ev=close rid=x srv=evil PM.`
	l, ok := parse([]byte(`PM1 ev=close rid=` + rid + ` pool=llama srv=r1 st=200 ts=-- PM. ` + forged))
	if !ok || l.event != closed || string(l.server) != "r1" || string(l.rid) != rid || l.state != [2]byte{'-', '-'} {
		t.Errorf("parsed %+v", l)
	}
	if l, ok := parse([]byte("10.0.0.1:99 [x] {" + forged + strings.Repeat("x", 4096))); ok {
		t.Errorf("a line without its fields was taken for %+v", l)
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=SD rc=+1 t0=1 tf=2 PM."))
	f.Add([]byte("PM1 ev= rid== rc= ts=x st=99999999999999999999 PM. x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := parse(b); ok {
			l.outcome()
		}
	})
}

func FuzzFeedFraming(f *testing.F) {
	f.Add([]byte("5 hello3 abc"))
	f.Add([]byte("99999999999999999999 x"))
	f.Add([]byte(" x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read := 0
		err := readLines(bytes.NewReader(b), func(l []byte) { read += len(l) }, func(time.Duration) {})
		if err == nil || read > len(b) {
			t.Errorf("read %d of %d bytes, error %v", read, len(b), err)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte(statText))
	f.Add([]byte("# pxname,svname,,scur,status,weight,addr\n,,,,,\n\n"))
	f.Add([]byte("description: \"a\n# pxname\"\n# pxname,svname,scur,status,weight,last_chk,addr\nllama,r1,0,UP,1,\"\"\"\n,\",x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(bytes.NewReader(b), every) })
}

const statText = `# pxname,svname,qcur,scur,status,weight,addr,
llama,r1,2,3,UP,100,127.0.0.1:8001,
llama,r2,0,0,DOWN,100,127.0.0.1:8002,
llama,r3,0,0,DRAIN,0,127.0.0.1:8003,
llama,r4,0,0,no check,1,127.0.0.1:8004,
llama,r5,0,0,MAINT (via x/y),1,127.0.0.1:8005,
llama,r6,0,0,UP 1/3,50,127.0.0.1:8006,
llama,r7,0,0,NOLB,50,127.0.0.1:8007,
web,w,0,0,UP,1,,

`

func TestStat(t *testing.T) {
	all, err := parseStat(strings.NewReader(statText), every)
	if err != nil {
		t.Fatal(err)
	}
	want := []decider.ReplicaState{
		{Name: "r1", Address: "127.0.0.1:8001", Up: true, Checked: true, Weight: 100, Requests: 5, Queued: 2, Counted: true},
		{Name: "r2", Address: "127.0.0.1:8002", Weight: 100, Idle: true, Counted: true},
		{Name: "r3", Address: "127.0.0.1:8003", Up: true, Draining: true, Idle: true, Counted: true},
		{Name: "r4", Address: "127.0.0.1:8004", Up: true, Idle: true, Counted: true, Weight: 1},
		{Name: "r5", Address: "127.0.0.1:8005", Weight: 1, Idle: true, Counted: true},
		{Name: "r6", Address: "127.0.0.1:8006", Up: true, Checked: true, Idle: true, Counted: true, Weight: 50},
		{Name: "r7", Address: "127.0.0.1:8007", Up: true, Draining: true, Idle: true, Counted: true, Weight: 50},
	}
	got := all.states
	if fmt.Sprint(got["llama"]) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got["llama"], want)
	}
	const info = "Name: HAProxy\nVersion: 3.2.1\nPid: 4711\nnode: lb1\ndescription:\n\n"
	if all, err = parseStat(strings.NewReader(info+statText), every); err != nil || all.states["llama"][6].Origin != origin([]byte("lb1/4711")) {
		t.Errorf("with the process that answers: %v, %v", got["llama"], err)
	}
	cut, _, _ := strings.Cut(statText, "llama,r3")
	for _, bad := range []string{"", "Unknown command\n", "# pxname,svname\n", info, "Pid: 4711\nPermission denied\n", cut, cut + "llama,r3,0,0,DRAIN,0,127.0.0.1:8", statText[:len(statText)-1], cut + "\"\n\n"} {
		if _, err := parseStat(strings.NewReader(bad), every); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newDecider returns a decider with the pool llama of two replicas, whose clock goes on
// by a second when it is read.
func newDecider() (*decider.Decider, *decider.Pool) {
	n := uint64(0)
	var now atomic.Int64
	d := decider.New(func() time.Duration { return time.Duration(now.Add(int64(time.Second))) }, func() uint64 { n++; return n })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Policy: policy.LeastRequests{}, Replicas: []decider.ReplicaConfig{{Name: "r1"}, {Name: "r2"}},
	}}})
	return d, d.Pools()[0]
}

// TestFeedHearsWhoAnswers: a line at the headers moves the reservation to the replica that
// answers, before its first byte.
func TestFeedHearsWhoAnswers(t *testing.T) {
	d, p := newDecider()
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), quiet())
	defer f.Close()
	var decision decider.Decision
	p.Decide(&decider.Request{ID: decider.ParseID([]byte(rid)), Pool: p, Output: -1, Stream: true}, &decision)
	other := 1
	if decision.Server == "r2" {
		other = 0
	}
	name := p.Status().Replicas[other].Name
	f.line([]byte("PM1 ev=first rid="+rid+" pool=llama srv="+name+" st=200 ts=-- rc=+1 t0=1 tf=- dec="+decision.Server+" PM."), new(lateness))
	if r := p.Status().Replicas[other]; r.InFlight != 1 || r.Waiting != 1 {
		t.Errorf("%s answers, and has %d requests, %d of them before the first byte", name, r.InFlight, r.Waiting)
	}
	f.line([]byte("PM1 ev=first rid="+rid+" pool=llama srv="+name+" st=200 ts=-- rc=+1 t0=1 tf=2 dec="+decision.Server+" PM."), new(lateness))
	if r := p.Status().Replicas[other]; r.InFlight != 1 || r.Waiting != 0 {
		t.Errorf("%s streams, and has %d requests, %d of them before the first byte", name, r.InFlight, r.Waiting)
	}
}

func TestFeedFollowsARequest(t *testing.T) {
	d, p := newDecider()
	set := metrics.NewSet()
	f := NewFeed(d, &link.Link{}, set, quiet())
	defer f.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()

	var decision decider.Decision
	p.Decide(&decider.Request{ID: decider.ParseID([]byte(rid)), Pool: p, Output: -1}, &decision)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	send := func(event, fields string) {
		text := "PM1 ev=" + event + " rid=" + rid + " pool=llama srv=" + decision.Server + " " + fields + " PM."
		if _, err := fmt.Fprintf(c, "%d %s", len(text), text); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(what string, done func(decider.PoolStatus) bool) {
		t.Helper()
		eventually(t, what, func() bool { return done(p.Status()) })
	}
	waiting := func(s decider.PoolStatus) int { return s.Replicas[0].Waiting + s.Replicas[1].Waiting }
	send("conn", "")
	send("first", "t0=1 tf=2")
	wait("streaming", func(s decider.PoolStatus) bool { return waiting(s) == 0 && s.Reservations == 1 })
	send("close", "st=200 ts=-- t0=1000000 tf=1200000")
	wait("served", func(s decider.PoolStatus) bool { return s.Reservations == 0 && s.Outcomes["served"] == 1 })

	// The feed counts the time after it has reported to the pool.
	wait("timed", func(decider.PoolStatus) bool {
		var page bytes.Buffer
		set.WritePrometheus(&page)
		return strings.Contains(page.String(), `pointsman_ttft_seconds_sum{pool="llama"} 0.2`)
	})

	// What breaks the framing costs that connection, and no other.
	bad, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(bad, "PM1 ev=close")
	if _, err := bad.Read(make([]byte, 1)); err == nil {
		t.Error("broken framing was accepted")
	}
	bad.Close()
	send("close", "st=200 ts=--")
	wait("another outcome", func(s decider.PoolStatus) bool { return s.Outcomes["served"] == 2 })
	c.Close()
	f.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A request that ended in the frontend names no pool: whichever holds its
// reservation gives it back.
func TestFeedWithoutAPool(t *testing.T) {
	d, p := newDecider()
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), quiet())
	p.Decide(&decider.Request{ID: decider.ParseID([]byte(rid)), Pool: p}, new(decider.Decision))
	f.line([]byte("PM1 ev=close rid="+rid+" pool=fe srv=<NOSRV> st=400 ts=CR PM."), new(lateness))
	if s := p.Status(); s.Reservations != 0 || s.Outcomes["client_gone"] != 1 {
		t.Errorf("%+v", s)
	}
	// The same before the decision: it must not book.
	late := "00000000-0000-0000-0000-000000000001"
	f.line([]byte("PM1 ev=close rid="+late+" pool=fe srv=<NOSRV> st=400 ts=CR PM."), new(lateness))
	var decision decider.Decision
	p.Decide(&decider.Request{ID: decider.ParseID([]byte(late)), Pool: p}, &decision)
	if decision.Why != "client_gone" || p.Status().Reservations != 0 {
		t.Errorf("%+v", decision)
	}
}

func TestFeedLineDoesNotAllocate(t *testing.T) {
	d, _ := newDecider()
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), quiet())
	line := []byte("PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 t0=1000000 tf=1200000" + rest)
	late := new(lateness)
	f.line(line, late)
	if a := testing.AllocsPerRun(1000, func() { f.line(line, late) }); a != 0 {
		t.Errorf("%v allocations a line", a)
	}
}

func BenchmarkFeedLine(b *testing.B) {
	d, _ := newDecider()
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), quiet())
	line := []byte("PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 t0=1000000 tf=1200000" + rest)
	late := new(lateness)
	b.ReportAllocs()
	for range b.N {
		f.line(line, late)
	}
}
