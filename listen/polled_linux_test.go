package listen

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// polled is a socket for datagrams of at most size bytes, and where to send them.
func polled(t *testing.T, size int) (*Polled, net.Conn) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	p, err := NewPolled(c, size)
	if err != nil {
		t.Fatal(err)
	}
	return p, to
}

// Datagrams end the wait of Serve while the socket is watched, also those that arrived
// before, and wait for Drain or the next round at other times.
func TestPolled(t *testing.T) {
	p, to := polled(t, 4)
	send := func(text string) {
		t.Helper()
		if _, err := to.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(on bool) {
		t.Helper()
		if err := p.Watch(on); err != nil || p.Watched() != on {
			t.Fatal(p.Watched(), err)
		}
	}
	var drained []string
	drain := func() []string {
		drained = nil
		for !p.Drain(func(b []byte) { drained = append(drained, string(b)) }) {
			drained = append(drained, "more")
		}
		return drained
	}
	send("a")
	send("bcdef")
	if got := drain(); !slices.Equal(got, []string{"a", "bcde"}) {
		t.Errorf("drained %q", got)
	}
	for range drainedAtOnce {
		send("")
	}
	send("z")
	if got := drain(); len(got) != drainedAtOnce+2 || got[drainedAtOnce] != "more" || got[drainedAtOnce+1] != "z" {
		t.Errorf("drained %d, the last ones %q", len(got), got[max(0, len(got)-2):])
	}

	served, came := make(chan error, 1), make(chan string, 8)
	go func() { served <- p.Serve(time.Hour, func(b []byte) { came <- string(b) }) }()
	wait := func(want string) {
		t.Helper()
		select {
		case got := <-came:
			if got != want {
				t.Errorf("got %q, not %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q did not arrive", want)
		}
	}
	for i := range 100 {
		text := fmt.Sprint(i)
		send(text)
		wait(text)
		watch(false)
		send(text)
		if got := drain(); !slices.Equal(got, []string{text}) {
			t.Fatalf("%q instead of %s: Serve has read it", got, text)
		}
		send(text)
		watch(true)
		wait(text)
	}
	p.Close()
	p.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := p.Watch(false); err != nil || !p.Drain(nil) {
		t.Error("after Close:", err)
	}
}

// Serve reads from time to time what nothing woke it for.
func TestPolledSometimes(t *testing.T) {
	p, to := polled(t, 8)
	if err := p.Watch(false); err != nil {
		t.Fatal(err)
	}
	served, came := make(chan error, 1), make(chan struct{}, 8)
	go func() { served <- p.Serve(time.Millisecond, func([]byte) { came <- struct{}{} }) }()
	for range 3 {
		if _, err := to.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-came:
		case <-time.After(20 * time.Second):
			t.Fatal("it was not read")
		}
	}
	p.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
