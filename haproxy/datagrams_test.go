package haproxy

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// A datagram ends a reservation that the ring has not told the end of, after a
// while, and nothing else.
func TestDatagrams(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Policy: policy.Random{}, Replicas: []decider.ReplicaConfig{{Name: "r1", Address: "127.0.0.1:1"}},
	}}})
	p := d.Pools()[0]
	f := NewFeed(d, metrics.NewSet(), slog.New(slog.DiscardHandler))
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
	f.line([]byte(line(0))) // the ring tells of the first one
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
