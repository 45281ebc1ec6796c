package haproxy

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/link"
)

// A datagram ends a reservation whose end the ring has not reported, after a while, and
// nothing else.
func TestDatagrams(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Policy: policy.Random{}, Replicas: []decider.ReplicaConfig{{Name: "r1", Address: "127.0.0.1:1"}},
	}}})
	p := d.Pools()[0]
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), slog.New(slog.DiscardHandler))
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- f.ServeDatagrams(c) }()
	sender, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()

	line := func(i int) string {
		return fmt.Sprintf("PM1 ev=close rid=00000000-0000-0000-0000-%012x pool=llama srv=r1 st=200 ts=-- rc=0 PM.", i)
	}
	for i := range 3 {
		r := decider.Request{ID: decider.ParseID(fmt.Appendf(nil, "00000000-0000-0000-0000-%012x", i)), Pool: p}
		var out decider.Decision
		p.Decide(&r, &out)
	}
	f.line([]byte(line(0)), new(lateness)) // the ring reports the first one
	for _, text := range []string{line(0), "noise", "PM1 ev=first rid=" + line(2)[17:], line(1), line(9)} {
		if _, err := sender.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.pendingEnds)
	}
	eventually(t, "three ends wait", func() bool { return waiting() == 3 })

	early := time.Now().Add(-datagramDelay)
	if f.Recover(early); p.Status().Reservations != 2 {
		t.Errorf("%d reservations before the ring had its time, want 2", p.Status().Reservations)
	}
	f.Recover(time.Now().Add(datagramDelay))
	s := p.Status()
	if s.Reservations != 1 || s.Outcomes["served"] != 2 || f.Recovered.Get() != 1 || waiting() != 0 {
		t.Errorf("%d reservations, outcomes %v, %d recovered, %d wait; want 1, 2 served, 1, 0",
			s.Reservations, s.Outcomes, f.Recovered.Get(), waiting())
	}
	f.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDatagramsWakeNobody: while a ring is connected, its lines have datagrams read, which
// wake the agent only when no ring is connected, after one has ended, and after an end that
// came as a datagram only.
func TestDatagramsWakeNobody(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Policy: policy.Random{}, Replicas: []decider.ReplicaConfig{{Name: "r1", Address: "127.0.0.1:1"}},
	}}})
	p := d.Pools()[0]
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), slog.New(slog.DiscardHandler))
	f.datagramPoll = time.Hour
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sender, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	done := make(chan error, 2)
	go func() { done <- f.Serve(l) }()
	go func() { done <- f.ServeDatagrams(c) }()
	ids := 0
	ask := func() string {
		ids++
		r := decider.Request{ID: decider.ParseID(fmt.Appendf(nil, "00000000-0000-0000-0000-%012x", ids)), Pool: p}
		var out decider.Decision
		p.Decide(&r, &out)
		return fmt.Sprintf("PM1 ev=close rid=00000000-0000-0000-0000-%012x pool=llama srv=r1 st=200 ts=-- rc=0 PM.", ids)
	}
	send := func(text string) {
		t.Helper()
		if _, err := sender.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (waiting, rings, sockets int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.pendingEnds), len(f.conns), len(f.polled)
	}
	arrives := func(what string, n int) {
		t.Helper()
		eventually(t, what, func() bool { waiting, _, _ := count(); return waiting == n })
	}
	watched := func(now time.Time) bool {
		f.Recover(now)
		return f.polled[0].Watched()
	}
	connect := func() net.Conn {
		t.Helper()
		ring, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the ring is connected", func() bool { _, rings, _ := count(); return rings == 1 })
		return ring
	}
	line := func(ring net.Conn, text string) {
		t.Helper()
		if _, err := fmt.Fprintf(ring, "%d %s", len(text), text); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the socket is served", func() bool { _, _, sockets := count(); return sockets == 1 })
	now := time.Now().Add(-time.Hour) // so that no end is due

	if !watched(now) {
		t.Error("nobody waits for datagrams, without a ring")
	}
	send(ask())
	arrives("the datagram without a ring", 1)

	ring := connect()
	if watched(now) {
		t.Error("datagrams wake the agent beside a ring")
	}
	end := ask()
	send(end)
	line(ring, end)
	arrives("the datagram of the ring's line", 2)
	eventually(t, "the ring's line", func() bool { return p.Status().Outcomes["served"] == 1 })

	send(ask())
	ring.Close()
	arrives("the datagram that came before the ring's end", 3)
	send(ask())
	arrives("the datagram after the ring's end", 4)
	ring = connect()
	if !watched(now) {
		t.Error("an HAProxy that stops may still send datagrams only")
	}
	later := time.Now().Add(watchTime)
	if !watched(later) || p.Status().Reservations != 0 || f.Recovered.Get() != 3 {
		t.Errorf("after ends without a ring: %d reservations, %d recovered", p.Status().Reservations, f.Recovered.Get())
	}
	if watched(later.Add(watchTime)) {
		t.Error("datagrams wake the agent long after the last such end")
	}
	last := ask()
	send(last)
	f.Close()
	ring.Close()
	if p.Status().Reservations != 0 || f.Recovered.Get() != 4 {
		t.Errorf("a datagram that had arrived did not count at the end: %+v", p.Status())
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Where most requests got an id and a replica, and neither an answer nor an error says
// of them, they are not asked about; but for those that the agent answered without a
// replica. A few are POSTs without a body. Nor is a chat that reached another backend.
func TestNotAsked(t *testing.T) {
	d, _ := newDecider()
	k := &link.Link{Proxy: "haproxy"}
	f := NewFeed(d, k, metrics.NewSet(), slog.New(slog.DiscardHandler))
	defer f.Close()
	k.Undecided()
	for _, text := range []string{
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=excused me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=1 dec=- fe=late me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=r1 fe=decided me=POST pa=completions PM.",
		"PM1 ev=close rid=" + rid + " pool=llama srv=<NOSRV> st=404 ts=PR rc=0 err=- dec=- fe=refused me=POST pa=completions PM.",
		"PM1 ev=close rid=- pool=old srv=e st=200 ts=-- rc=0 err=- dec=- fe=web me=POST pa=completions PM.",
		"PM1 ev=close rid=- pool=old srv=e st=200 ts=-- rc=0 err=- dec=- fe=shop me=POST pa=basket PM.",
	} {
		f.line([]byte(text), new(lateness))
	}
	if s := k.Status(time.Now()); len(s.Bypassed) != 1 || s.Bypassed["web"] != 2 {
		t.Errorf("%+v", s)
	}
}

// TestBypass: a POST that reached a pool without an id was not asked about. Other
// requests, and lines that are cut, say nothing.
func TestBypass(t *testing.T) {
	d, _ := newDecider()
	k := &link.Link{Proxy: "haproxy"}
	var log strings.Builder
	f := NewFeed(d, k, metrics.NewSet(), slog.New(slog.NewTextHandler(&log, nil)))
	defer f.Close()
	for _, text := range []string{
		"PM1 ev=close rid=- pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST PM.",
		"PM1 ev=close rid=- pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST PM. GET /more",
		"PM1 ev=close rid=- pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=GET PM.",
		"PM1 ev=close rid=- pool=static srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST PM.",
		"PM1 ev=close rid=- pool=llama srv=<NOSRV> st=200 ts=-- rc=0 err=- dec=- fe=web me=POST PM.",
		"PM1 ev=close rid=- pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=- fe=web me=POST",
	} {
		f.line([]byte(text), new(lateness))
	}
	s := k.Status(time.Now())
	if len(s.Bypassed) != 1 || s.Bypassed["web"] != 2 || s.FeedAge != -1 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "frontend=web") {
		t.Errorf("%+v, logged %s", s, log.String())
	}
	f.line([]byte("PM1 ev=close rid="+rid+" pool=llama srv=r1 st=200 ts=-- rc=0 err=2 dec=- fe=web me=POST PM."), new(lateness))
	f.line([]byte("PM1 ev=close rid="+rid+" pool=llama srv=r1 st=200 ts=-- rc=0 err=- dec=r2 fe=web me=POST PM."), new(lateness))
	if s := k.Status(time.Now()); s.Unanswered != 1 || s.Mismatches != 1 || s.FeedAge < 0 {
		t.Errorf("%+v", s)
	}
}
