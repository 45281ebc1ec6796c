package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"pointsman/bench/stand"
	"pointsman/demo"
)

// The workload of quality: the demo's conversations on its replicas.
const (
	talks      = 500 // requests
	talkSpeed  = 1   // times that of a 70B model
	talkTokens = 40_000
	talkSeed   = 1

	// talkLimit ends a run that takes far longer than its requests.
	talkLimit = time.Minute
)

// talkLoads are multiples of the load that round robin sustains.
var talkLoads = []float64{0.85, 1.6}

// quality is what clients saw with one rival at one load.
type quality struct{ demo.Seen }

// qualities plays the workload on each rival, with new replicas each time. It leaves out a
// rival that decides like another one.
func (b *bench) qualities(ctx context.Context) error {
	for _, load := range talkLoads {
		for _, r := range b.running() {
			if strings.HasPrefix(r.name, "pointsman-haproxy-") || r.name == "nginx" {
				continue
			}
			b.say("quality of %s at %g", r.name, load)
			seen, err := b.talk(ctx, r, load)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				b.fail(r, err)
				continue
			}
			if b.seen[r.name] == nil {
				b.seen[r.name] = map[float64]quality{}
			}
			b.seen[r.name][load] = quality{*seen}
		}
	}
	return nil
}

func (b *bench) talk(ctx context.Context, r *rival, load float64) (*demo.Seen, error) {
	var procs stand.Processes
	defer procs.Stop()
	var engines, urls []string
	for i := range smallFleet {
		address, err := stand.FreePort()
		if err != nil {
			return nil, err
		}
		if _, err := procs.Start(binary, "engine", "--listen", address, "--name", fmt.Sprintf("r%d", i+1), "--profile", "70b", "--model", stand.Model,
			"--speed", fmt.Sprint(talkSpeed), "--cache-tokens", fmt.Sprint(talkTokens)); err != nil {
			return nil, err
		}
		engines, urls = append(engines, address), append(urls, "http://"+address)
	}
	for _, u := range urls {
		if err := healthy(u); err != nil {
			return nil, err
		}
	}
	s, err := open(r, engines, &procs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, talkLimit)
	defer cancel()
	seen, err := demo.Against(ctx, demo.Options{
		Requests: talks, Replicas: smallFleet, Load: load, Speed: talkSpeed, CacheTokens: talkTokens, Seed: talkSeed,
	}, s.url(), urls)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the %d requests of the conversations took longer than %v", talks, talkLimit)
	}
	return seen, err
}

// healthy waits until a replica serves.
func healthy(url string) error {
	client := &http.Client{Timeout: time.Second}
	var err error
	for range 100 {
		var resp *http.Response
		if resp, err = client.Get(url + "/health"); err == nil {
			resp.Body.Close()
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
