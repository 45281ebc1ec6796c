package haproxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/link"
	"pointsman/spoa"
)

// FuzzQuestion asks for decisions with arguments of any name, type and length. Whatever
// is asked, the agent answers or closes that connection, and counts what it decided.
func FuzzQuestion(f *testing.F) {
	arg := func(name, value string) []byte { return append(append(str(name), 8), str(value)...) }
	chats := func(b ...[]byte) []byte { return append([]byte{byte(len(b))}, bytes.Join(b, nil)...) }
	f.Add(chats(arg("rid", rid), arg("path", "/v1/chat/completions"), arg("body", chat)))
	f.Add(chats(arg("rid", rid), arg("head", chat[:20]), arg("tail", chat[20:]), arg("hdrs", "X-Session-Id: a\r\nAuthorization: b\r\n")))
	f.Add(chats(append(str("bsize"), 4, 0xff, 0xff), append(str("blen"), 3, 0), arg("pool", "code"), arg("model", "coder")))
	f.Add(chats(append(str("rid"), 6, 127, 0, 0, 1), append(str("body"), 1), append(str("hdrs"), 0)))
	in := pools(decider.PoolConfig{Replicas: []decider.ReplicaConfig{{Name: "r1"}, {Name: "r2"}}})
	s := &spoa.Server{Handler: NewAgent(in, &link.Link{}, 0, metrics.NewSet()).Handle, Log: slog.New(slog.DiscardHandler)}
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
		<-served
	})
	frame := func(kind byte, payload []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(7+len(payload)))
		return append(append(b, kind, 0, 0, 0, 1, 1, 1), payload...)
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		if len(args) > 16<<10 {
			return
		}
		c, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		b := frame(1, append(str("max-frame-size"), 3, 0xfc, 0xf0, 0x06))
		b = append(b, frame(3, append(str("pm-route"), args...))...)
		b = append(b, frame(2, append(append(str("status-code"), 3, 0), append(str("message"), 8, 0)...))...)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		for _, p := range in.Decider().Pools() {
			balanced(t, p)
		}
		if s.Stats().Panics > 0 {
			t.Fatal("it panicked")
		}
	})
}

// balanced checks that the replicas of a pool hold what the pool has reserved.
func balanced(t *testing.T, p *decider.Pool) {
	t.Helper()
	st, held := p.Status(), 0
	for _, r := range st.Replicas {
		if r.InFlight < 0 || r.Tokens < 0 {
			t.Fatalf("%+v", r)
		}
		held += r.InFlight
	}
	if held != st.Reservations {
		t.Fatalf("%d requests are in flight, %d are reserved", held, st.Reservations)
	}
}

// FuzzFeedLines has the feed read lines about requests, some of which are in flight.
// Whatever is reported, the counts stay those of the reservations.
func FuzzFeedLines(f *testing.F) {
	for _, event := range []string{"conn", "first", "close"} {
		f.Add([]byte("PM1 ev=" + event + " rid=" + rids(1) + " pool=llama srv=r1 st=200 ts=-- rc=0 t0=1 tf=2 dec=r1 fe=web me=POST pa=completions PM.\n" +
			"PM1 ev=close rid=" + rids(2) + " pool=llama srv=r2 st=503 ts=SC rc=+3 dec=r1 PM. x\nPM1 ev=close rid=" + rids(1) + " pool=code srv=c1 st=200 ts=SD PM."))
	}
	in := pools(decider.PoolConfig{Replicas: []decider.ReplicaConfig{{Name: "r1"}, {Name: "r2"}}})
	feed := NewFeed(in.Decider(), &link.Link{}, metrics.NewSet(), slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := in.Decider().Pool("llama")
		for i := range 3 {
			var d decider.Decision
			r := decider.Request{Pool: p, ID: decider.ParseID([]byte(rids(i + 1))), Input: 100}
			p.Decide(&r, &d)
		}
		var late lateness
		for line := range bytes.Lines(text) {
			feed.line(line, &late)
		}
		balanced(t, p)
		for i := range 3 {
			finish(in.Decider(), i+1)
		}
		balanced(t, p)
	})
}
