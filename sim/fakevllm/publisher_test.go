package fakevllm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/engine/zmtp"
)

// startPublisher starts a replica that publishes events, and connects a peer of
// that kind to its socket number i.
func startPublisher(t *testing.T, o Options, i int, kind string) (*replica, *zmtp.Conn) {
	t.Helper()
	o.Events, o.Replay = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
	r := start(t, o)
	if err := r.Publish(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.engine.events.addrs[i].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	peer, err := zmtp.NewConn(conn, kind, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return r, peer
}

// store makes the replica cache the blocks of a new prompt.
func (r *replica) store(i int) {
	r.Helper()
	r.answer("/v1/completions", fmt.Sprintf(`{"prompt":"%064d","max_tokens":1}`, i))
}

// TestPublish: a subscriber receives batches with consecutive numbers, equal to
// those that are kept; a lost batch leaves a gap.
func TestPublish(t *testing.T) {
	var losing atomic.Bool
	var lost atomic.Uint64
	r, peer := startPublisher(t, Options{LoseBatch: func(n uint64) bool {
		if losing.CompareAndSwap(true, false) {
			lost.Store(n)
			return true
		}
		return false
	}}, 0, "SUB")
	if err := peer.Subscribe(); err != nil {
		t.Fatal(err)
	}
	var next uint64
	receive := func() {
		t.Helper()
		frames, err := peer.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) != 3 || string(frames[0]) != "kv-events" || len(frames[1]) != 8 {
			t.Fatalf("frames %q", frames)
		}
		n := binary.BigEndian.Uint64(frames[1])
		if next > 0 && n != next || !bytes.Equal(frames[2], r.Batches()[n]) {
			t.Errorf("batch %d, want %d as it is kept", n, next)
		}
		next = n + 1
	}
	// The subscription takes effect some time after it was sent.
	subscribed := make(chan error, 1)
	go func() { subscribed <- peer.Wait() }()
	prompts := 0
	for waiting := true; waiting; {
		r.store(prompts)
		prompts++
		select {
		case err := <-subscribed:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		default:
		}
	}
	receive()
	for int(next) < len(r.Batches()) {
		receive()
	}
	losing.Store(true)
	r.store(prompts)
	r.store(prompts + 1)
	if lost.Load() != next {
		t.Errorf("lost batch %d, want %d", lost.Load(), next)
	}
	next++
	receive()
}

// TestReplayEvents: a peer receives the kept batches from the number on that it
// asks for, and then an end marker; a failing replay answers differently.
func TestReplayEvents(t *testing.T) {
	var fail atomic.Bool
	r, peer := startPublisher(t, Options{LoseReplay: fail.Load, EventForm: KVEventsOptions{Maps: true}}, 1, "DEALER")
	for i := range 5 {
		r.store(i)
	}
	batches := r.Batches()
	if len(batches) < 5 {
		t.Fatalf("%d batches", len(batches))
	}
	ask := func(from int) {
		t.Helper()
		if err := peer.Send(nil, number(uint64(from))); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.Send(nil, []byte("nonsense!")); err != nil { // ignored
		t.Fatal(err)
	}
	ask(2)
	for n := 2; n <= len(batches); n++ {
		frames, err := peer.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) != 4 || len(frames[0]) != 0 || string(frames[1]) != "kv-events" {
			t.Fatalf("frames %q", frames)
		}
		got := binary.BigEndian.Uint64(frames[2])
		if n == len(batches) {
			if got != ^uint64(0) || len(frames[3]) != 0 {
				t.Errorf("end marker %q", frames)
			}
		} else if got != uint64(n) || !bytes.Equal(frames[3], batches[n]) {
			t.Errorf("batch %d, want %d", got, n)
		}
	}
	fail.Store(true)
	ask(0)
	if frames, err := peer.Receive(); err != nil || len(frames) != 2 || string(frames[1]) != "lost" {
		t.Errorf("frames %q: %v", frames, err)
	}
}

// TestPublishErrors: sockets that cannot be opened are reported.
func TestPublishErrors(t *testing.T) {
	if err := start(t, Options{}).Publish(); err != nil {
		t.Errorf("no sockets: %v", err)
	}
	if err := start(t, Options{Events: "tcp://127.0.0.1:99999"}).Publish(); err == nil {
		t.Error("opened port 99999 for events")
	}
	if err := start(t, Options{Events: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:99999"}).Publish(); err == nil {
		t.Error("opened port 99999 for the replay")
	}
	if err := start(t, Options{Events: "tcp://127.0.0.1:0"}).Publish(); err != nil {
		t.Errorf("events without a replay: %v", err)
	}
}
