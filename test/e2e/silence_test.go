package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestEnginesFallSilent has every engine fall silent in the midst of traffic, its
// metrics and the events of its KV cache, each in its own way. No request fails,
// decisions go on by what the proxy reports, and the age of the signals shows.
// Later they come again.
func TestEnginesFallSilent(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		enginesFallSilent(t, r)
	})
}

func enginesFallSilent(t *testing.T, r rig.Release) {
	const other = "other-model"
	var engines []*rig.Engine
	var gates []*rig.Gate
	var list []string
	for i := range 3 {
		name := fmt.Sprintf("r%d", i+1)
		o := rig.EngineOptions{
			Models: []string{rig.Model, other},
			Events: "tcp://" + rig.FreeAddress(t), Replay: "tcp://" + rig.FreeAddress(t),
		}
		e := rig.StartEngine(t, name, o)
		if err := e.Sim.Publish(); err != nil {
			t.Fatal(err)
		}
		events, replay := rig.NewGate(t, strings.TrimPrefix(o.Events, "tcp://")), rig.NewGate(t, strings.TrimPrefix(o.Replay, "tcp://"))
		engines, gates = append(engines, e), append(gates, events, replay)
		list = append(list, fmt.Sprintf("%s: {address: %q, kv_events: {port: %s, replay: %s}}", name, e.Address, events.Port(), replay.Port()))
	}
	replicas := "{" + strings.Join(list, ", ") + "}"
	s := rig.NewSite(t, r, fmt.Sprintf(`pools:
  %s: {models: [%s], engine: vllm, policy: kv_aware, replicas: %s}
  other: {models: [%s], engine: vllm, policy: least_work, replicas: %[3]s}
`, rig.Pool, rig.Model, replicas, other))
	s.Start()

	// Each prompt is new to the engines, for either pool in turn.
	prompt := func(i int) []byte {
		m := rig.Model
		if i%2 == 1 {
			m = other
		}
		return rig.Chat(m, 600, 8, i%4 < 2, 131*i)
	}
	var mu sync.Mutex
	sent := 0
	tr := rig.StartTrafficOf(t, s.Front, 6, func(int) rig.Call {
		mu.Lock()
		defer mu.Unlock()
		sent++
		return rig.Call{Body: prompt(sent)}
	})
	fresh := func(what string) {
		t.Helper()
		batches := s.Agent.Signals()
		rig.Eventually(t, 20*time.Second, what, func() (bool, string) {
			now := s.Agent.Signals()
			ok := len(now) == 6
			for i, g := range now {
				ok = ok && g.Age >= 0 && g.Age < 2 && g.Error == "" && i < len(batches)
				if ok && g.Pool == rig.Pool {
					ok = g.Blocks != nil && batches[i].Blocks != nil && g.Blocks.Online == 1 && g.Blocks.Batches > batches[i].Blocks.Batches
				}
			}
			return ok, fmt.Sprintf("%+v", now)
		})
	}
	fresh("every engine sends")
	tr.Await(200)

	for i, how := range []string{`{"path":"/metrics","hang":true}`, `{"path":"/metrics","status":500}`, `{"path":"/metrics","die_after":0}`} {
		rig.Fault(t, engines[i], how)
	}
	for _, g := range gates {
		g.Shut()
	}
	silent := time.Now()
	var before map[string]float64
	for _, age := range []float64{2, 5.5} { // after 5 s the caches are predicted
		rig.Eventually(t, 20*time.Second, "ages grow", func() (bool, string) {
			ok, ages := true, s.Agent.Ages(prompt(0))
			for r, a := range ages {
				ok = ok && a >= age && a > before[r]
			}
			if ok {
				before = ages
			}
			return ok && len(ages) == len(engines), fmt.Sprint(ages)
		})
		tr.Await(100)
	}
	for _, g := range s.Agent.Signals() {
		if g.Age < 5 || g.Error == "" && g.Replica != "r1" || g.Blocks != nil && g.Blocks.Online != 0 { // r1 hangs, which is known later
			t.Errorf("silent for %v: %+v", time.Since(silent), g)
		}
	}
	if table := string(s.Agent.Run(nil, "status", "--signals", "--once")); strings.Count(table, "offline") != 3 {
		t.Errorf("status --signals:\n%s", table)
	}
	// By its own counts the agent spreads what takes long.
	client := rig.NewClient(12, true, false)
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			c := rig.Call{Body: prompt(10_001 + 2*i), Header: map[string]string{"X-Hold": "1"}}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Errorf("while they are silent: %v", err)
			}
		})
	}
	var by []int
	rig.Eventually(t, 10*time.Second, "they are in flight", func() (bool, string) {
		by = []int{engines[0].Holds(), engines[1].Holds(), engines[2].Holds()}
		return by[0]+by[1]+by[2] == 12, fmt.Sprint(by)
	})
	if slices.Min(by) < 2 || slices.Max(by) > 6 {
		t.Errorf("12 long requests went to %v", by)
	}
	for _, e := range engines {
		e.Release()
	}
	all.Wait()

	for _, e := range engines {
		e.Recovers(t)
	}
	for _, g := range gates {
		g.Open()
	}
	fresh("every engine sends again")
	rig.Eventually(t, 5*time.Second, "explain shows that every signal is fresh", func() (bool, string) {
		ages := s.Agent.Ages(prompt(0))
		ok := len(ages) == len(engines)
		for _, a := range ages {
			ok = ok && a >= 0 && a <= 3
		}
		return ok, fmt.Sprint(ages)
	})
	tr.Await(200)
	n := tr.Stop()
	for _, name := range []string{rig.Pool, "other"} {
		if p := s.Agent.Settled(name); p.FellOpen != 0 || p.Outcomes["served"] != p.Ended() {
			t.Errorf("of %d requests: %+v", n, p)
		}
	}
	s.Untroubled()
}
