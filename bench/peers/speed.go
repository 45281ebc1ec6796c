package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/bench/stand"
)

// The load of one round on each rival. A time limit ends it for slow ones.
const (
	fleet       = 8   // replicas
	atOnce      = 32  // clients of the load
	streamers   = 64  // clients of the streams
	streams     = 128 // of a round
	singles     = 250 // requests of one client alone
	singleLimit = 300 * time.Millisecond
	loadTime    = 600 * time.Millisecond
)

// sizes of bodies, in KiB.
var sizes = []int{1, 16, 128}

// speeds measures latency, processor time and throughput, all rivals in turn.
func (b *bench) speeds(ctx context.Context) error {
	var procs stand.Processes
	defer procs.Stop()
	listen, err := stand.FreePort()
	if err != nil {
		return err
	}
	if _, err := procs.Start(self, "-replica", listen, "-replicas", fmt.Sprint(fleet)); err != nil {
		return err
	}
	var engines []string
	for i := range fleet {
		engines = append(engines, stand.Loopback(i, listen))
	}
	scenes := map[*rival]*scene{}
	for _, r := range b.running() {
		b.say("starting %s", r.name)
		s, err := open(r, engines, &procs)
		if err != nil {
			b.fail(r, err)
			if s != nil {
				for _, q := range s.routing {
					q.Kill()
				}
			}
			continue
		}
		scenes[r] = s
	}
	for n := range *rounds {
		list := b.running()
		for k := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			r := list[(k+n)%len(list)] // none is always the first
			if err := b.turn(r, scenes[r]); err != nil {
				b.fail(r, err)
			}
		}
		b.say("round %d of %d", n+1, *rounds)
	}
	return nil
}

// turn is one rival's part of a round.
func (b *bench) turn(r *rival, s *scene) error {
	for _, kib := range sizes {
		body := stand.Body(kib<<10, false)
		if b.has("latency") {
			client := stand.NewClient(s.url(), 1)
			if l := stand.Closed(client, s.url(), body, 1, 20, singleLimit); l.Err != nil { // to get warm
				return l.Err
			}
			l := stand.Closed(client, s.url(), body, 1, singles, singleLimit)
			if l.Err != nil {
				return l.Err
			}
			b.note(fmt.Sprintf("latency %d", kib), r, stand.Median(l.Latencies))
			client.CloseIdleConnections()
		}
		if !b.has("cpu") && !b.has("throughput") {
			continue
		}
		client := stand.NewClient(s.url(), atOnce)
		l, taken, err := loaded(s, client, body, atOnce, math.MaxInt, loadTime)
		if err != nil {
			return err
		}
		if b.has("cpu") {
			b.note(fmt.Sprintf("cpu %d", kib), r, taken.Seconds()*1000/float64(len(l.Latencies)))
		}
		if b.has("throughput") {
			b.note(fmt.Sprintf("rate %d", kib), r, float64(len(l.Latencies))/l.Took.Seconds())
		}
	}
	if !b.has("cpu") {
		return nil
	}
	l, taken, err := loaded(s, stand.NewClient(s.url(), streamers), stand.Body(1<<10, true), streamers, streams, 3*time.Second)
	if err == nil && l.Chunks < len(l.Latencies)*stand.Chunks {
		err = fmt.Errorf("%d streams had %d chunks only", len(l.Latencies), l.Chunks)
	}
	if err == nil {
		b.note("chunks", r, taken.Seconds()*1000/float64(l.Chunks))
	}
	return err
}

// loaded puts a load on a scene and measures the processor time that it takes there.
func loaded(s *scene, client *fasthttp.HostClient, body []byte, clients, n int, most time.Duration) (stand.Load, time.Duration, error) {
	defer client.CloseIdleConnections()
	before, err := stand.CPU(s.routing...)
	if err != nil {
		return stand.Load{}, 0, err
	}
	l := stand.Closed(client, s.url(), body, clients, n, most)
	after, err := stand.CPU(s.routing...)
	if err == nil && l.Failed > 0 {
		err = fmt.Errorf("%d of %d requests failed, the first with: %w", l.Failed, l.Failed+len(l.Latencies), l.Err)
	}
	if err == nil && len(l.Latencies) == 0 {
		err = fmt.Errorf("no request was answered in %v", l.Took)
	}
	return l, after - before, err
}

func (b *bench) note(cell string, r *rival, value float64) {
	if b.figures[cell] == nil {
		b.figures[cell] = map[string][]float64{}
	}
	b.figures[cell][r.name] = append(b.figures[cell][r.name], value)
}
