package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestStreamTiming compares when the chunks of streams arrive through the proxy
// with when they arrive from the engine itself, in turns. The engine notes when it
// wrote each chunk, so that its own unevenness does not count. What the proxy adds
// is what it adds in every turn: what a busy machine adds to some does not count.
func TestStreamTiming(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		// A chunk each 4 ms, of two streams at a time.
		profile := quick
		profile.Base = 4 * time.Millisecond
		e := startEngine(t, "r1", engineOptions{Models: []string{model}, Profile: profile})
		s := newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], replicas: %s}}\n", pool, model, replicasYAML(e)))
		s.start()
		turns := 5
		if soak {
			turns = 200
		}
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		added := time.Hour
		for turn := range turns {
			direct := watch(t, client, e, e.address, fmt.Sprint("d", turn))
			through := watch(t, client, e, s.front, fmt.Sprint("t", turn))
			slices.Sort(direct)
			slices.Sort(through)
			d, p := direct[len(direct)/2], through[len(through)/2]
			t.Logf("median delay of a chunk: %v directly, %v through the proxy; p99 %v and %v", d, p, direct[len(direct)*99/100], through[len(through)*99/100])
			added = min(added, p-d)
		}
		if added >= time.Millisecond {
			t.Errorf("the proxy adds %v to a chunk (median), want less than 1ms", added)
		}
		if p := s.agent.settled(pool); p.Outcomes["served"] != turns || p.Decisions != turns || p.ended() != turns {
			t.Errorf("want %d requests: %+v", turns, p)
		}
		s.untroubled()
	})
}

// watch streams an answer of 60 chunks from host and returns the delay of each
// between the engine and here.
func watch(t *testing.T, client *http.Client, e *engine, host, id string) []time.Duration {
	t.Helper()
	const tokens = 60
	c := call{body: chat(model, 300, tokens, true, 0), header: map[string]string{"X-Watch": id}}
	r, err := c.request(context.Background(), host, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var arrived []time.Time
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d chunks: %v", len(arrived), err)
		}
		if line == "\n" {
			arrived = append(arrived, time.Now())
		}
	}
	v, ok := e.emitted.Load(id)
	if !ok {
		t.Fatalf("the engine did not see stream %s", id)
	}
	em := v.(*emission)
	em.mu.Lock()
	defer em.mu.Unlock()
	if len(arrived) < tokens || len(em.at) < len(arrived) {
		t.Fatalf("%d chunks written, %d arrived, want at least %d", len(em.at), len(arrived), tokens)
	}
	delays := make([]time.Duration, len(arrived))
	for i, at := range arrived {
		delays[i] = at.Sub(em.at[i])
	}
	return delays
}
