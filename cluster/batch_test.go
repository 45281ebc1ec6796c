package cluster

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
)

// TestEventsWaitForOthersBriefly: an event that follows no other is sent at once, and each
// within 2 ms; where many come, several share a message.
func TestEventsWaitForOthersBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) + time.Hour }
		d := decider.New(clock, func() uint64 { return 1 })
		n := New(Options{Cluster: "test", Agent: "a", Secret: wire.NewSecret("test", []byte("a shared secret")), Decider: d, Log: slog.New(slog.DiscardHandler), Clock: clock})
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: &first{}, PolicyName: "test", Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
		if err := n.Connect((&testNet{}).connect("a")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); n.Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()

		type pending struct {
			at   time.Time
			sent uint64 // events, if this one is among them
		}
		base, messages := n.Status().SentEvents, n.Status().SentMessages
		var waiting []pending
		r, alone := rand.New(rand.NewPCG(1, 1)), 0
		const events = 2000
		for i := range uint64(events) {
			q := decider.Request{ID: decider.ID{byte(i), byte(i >> 8)}, Pool: d.Pool("llama"), Input: 10, Output: 1}
			var answer decider.Decision
			d.Pool("llama").Decide(&q, &answer)
			waiting = append(waiting, pending{time.Now(), base + i + 1})
			if i%100 == 0 { // none came before it for long
				synctest.Wait()
				if n.Status().SentEvents >= base+i+1 {
					alone++
				}
			}
			pause := time.Duration(r.IntN(200)) * time.Microsecond
			if i%100 == 99 {
				pause = 20 * time.Millisecond
			}
			time.Sleep(pause)
			synctest.Wait()
			sent := n.Status().SentEvents
			for len(waiting) > 0 && time.Since(waiting[0].at) >= 2*time.Millisecond {
				if sent < waiting[0].sent {
					t.Fatalf("event %d waits for %v", waiting[0].sent-base, time.Since(waiting[0].at))
				}
				waiting = waiting[1:]
			}
		}
		if m := n.Status().SentMessages - messages; m > events/3 || alone != events/100 {
			t.Errorf("%d messages for %d events, %d of %d alone sent at once", m, events, alone, events/100)
		}
		cancel()
		<-done
	})
}
