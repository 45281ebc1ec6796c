package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/bench/stand"
)

// The load during failures: requests come at a fixed rate, whatever happens to earlier
// ones, and each takes its replica a while.
const (
	steady     = 300                   // requests
	steadyGap  = 10 * time.Millisecond // between them
	serving    = 50 * time.Millisecond // of each request
	killAfter  = time.Second
	restarting = 100 * time.Millisecond // the time that a supervisor takes
	recovery   = 5 * time.Second        // after the engine is back
	smallFleet = 4
)

// failed is how many requests of steady failed.
type failed struct{ engine, router int }

// failures kills an engine, and the router, under load.
func (b *bench) failures(ctx context.Context) error {
	for _, r := range b.running() {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.say("failures of %s", r.name)
		f, err := b.kill(r)
		if err != nil {
			b.fail(r, err)
			continue
		}
		b.lost[r.name] = f
	}
	return nil
}

func (b *bench) kill(r *rival) (f failed, err error) {
	var procs stand.Processes
	defer procs.Stop()
	var engines []string
	var start []func() (*stand.Process, error)
	var victim *stand.Process
	for range smallFleet {
		address, err := stand.FreePort()
		if err != nil {
			return f, err
		}
		engines = append(engines, address)
		start = append(start, func() (*stand.Process, error) {
			return procs.Start(self, "-replica", address, "-delay", serving.String())
		})
		if victim, err = start[len(start)-1](); err != nil {
			return f, err
		}
	}
	s, err := open(r, engines, &procs)
	if err != nil {
		return f, err
	}
	f.engine = s.steady(victim.Kill)
	if _, err := start[len(start)-1](); err != nil {
		return f, err
	}
	time.Sleep(recovery)
	if err := s.await(startLimit); err != nil {
		return f, err
	}
	var restartErr error
	f.router = s.steady(func() {
		s.brain.Kill()
		time.Sleep(restarting)
		_, restartErr = s.restart()
	})
	return f, restartErr
}

// steady sends requests at their fixed rate, calls do after a second, and counts those
// that got no whole answer.
func (s *scene) steady(do func()) int {
	transport := &http.Transport{MaxIdleConnsPerHost: steady, MaxConnsPerHost: steady}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	defer transport.CloseIdleConnections()
	body := stand.Body(1<<10, false)
	var lost atomic.Int32
	var wg sync.WaitGroup
	begun := time.Now()
	wg.Go(func() {
		time.Sleep(killAfter)
		do()
	})
	for i := range steady {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * steadyGap)))
		wg.Go(func() {
			if ask(client, s.url(), body) != nil {
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	return int(lost.Load())
}

// ask sends one request and reads its answer. It does not retry: an inference request is
// too expensive for clients to repeat it unasked. Its body can be read only once, so that
// Go's client does not retry either.
func ask(client *http.Client, url string, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, url+stand.Path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return err
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "choices") {
		return fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	return nil
}
