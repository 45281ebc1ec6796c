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

	"pointsman/test/rig"
)

// TestStreamTiming compares when the chunks of streams arrive through the proxy
// with when they arrive from the engine itself, in turns. The engine notes when it
// wrote each chunk, so that its own unevenness does not count. What the proxy adds
// is what it adds in every turn: what a busy machine adds to some does not count.
func TestStreamTiming(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		// A chunk each 4 ms, of two streams at a time.
		profile := rig.Quick
		profile.Base = 4 * time.Millisecond
		e := rig.StartEngine(t, "r1", rig.EngineOptions{Models: []string{rig.Model}, Profile: profile})
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], replicas: %s}}\n", rig.Pool, rig.Model, rig.ReplicasYAML(e)))
		s.Start()
		turns := 5
		if rig.Soak {
			turns = 200
		}
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		added := time.Hour
		for turn := range turns {
			direct := watch(t, client, e, e.Address, fmt.Sprint("d", turn))
			through := watch(t, client, e, s.Front, fmt.Sprint("t", turn))
			slices.Sort(direct)
			slices.Sort(through)
			d, p := direct[len(direct)/2], through[len(through)/2]
			t.Logf("median delay of a chunk: %v directly, %v through the proxy; p99 %v and %v", d, p, direct[len(direct)*99/100], through[len(through)*99/100])
			added = min(added, p-d)
		}
		if added >= time.Millisecond {
			t.Errorf("the proxy adds %v to a chunk (median), want less than 1ms", added)
		}
		if p := s.Agent.Settled(rig.Pool); p.Outcomes["served"] != turns || p.Decisions != turns || p.Ended() != turns {
			t.Errorf("want %d requests: %+v", turns, p)
		}
		s.Untroubled()
	})
}

// watch streams an answer of 60 chunks from host and returns the delay of each
// between the engine and here.
func watch(t *testing.T, client *http.Client, e *rig.Engine, host, id string) []time.Duration {
	t.Helper()
	const tokens = 60
	c := rig.Call{Body: rig.Chat(rig.Model, 300, tokens, true, 0), Header: map[string]string{"X-Watch": id}}
	r, err := c.Request(context.Background(), host, nil)
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
	v, ok := e.Emitted.Load(id)
	if !ok {
		t.Fatalf("the engine did not see stream %s", id)
	}
	em := v.(*rig.Emission)
	em.Mu.Lock()
	defer em.Mu.Unlock()
	if len(arrived) < tokens || len(em.At) < len(arrived) {
		t.Fatalf("%d chunks written, %d arrived, want at least %d", len(em.At), len(arrived), tokens)
	}
	delays := make([]time.Duration, len(arrived))
	for i, at := range arrived {
		delays[i] = at.Sub(em.At[i])
	}
	return delays
}
