package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// gate passes connections on to an address until it is shut.
type gate struct {
	t       testing.TB
	address string // its own
	to      string
	mu      sync.Mutex
	l       net.Listener
	conns   []net.Conn
}

// newGate returns a gate that is open. It is shut at the test's end.
func newGate(t testing.TB, to string) *gate {
	g := &gate{t: t, address: freeAddress(t), to: to}
	g.open()
	t.Cleanup(g.shut)
	return g
}

func (g *gate) open() {
	g.t.Helper()
	l := proxies.Listen(g.t, g.address)
	g.mu.Lock()
	g.l = l
	g.mu.Unlock()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", g.to)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, in, out)
			shut := g.l != l
			g.mu.Unlock()
			if shut {
				in.Close()
				out.Close()
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// shut makes the gate refuse connections and cuts those it has.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l == nil {
		return
	}
	proxies.Free(g.l)
	g.l = nil
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// port is the port that the gate listens on.
func (g *gate) port() string {
	_, port, _ := net.SplitHostPort(g.address)
	return port
}

// signal is what tests read of one replica's signals in the output of `pointsman
// status --signals --json`.
type signal struct {
	Pool    string  `json:"pool"`
	Replica string  `json:"replica"`
	Error   string  `json:"error"`
	Age     float64 `json:"age_s"`
	Blocks  *struct {
		Online  int    `json:"online"`
		Batches uint64 `json:"batches"`
	} `json:"blocks"`
}

// run runs pointsman with args against the agent and returns what it prints.
func (a *agent) run(stdin []byte, args ...string) []byte {
	a.t.Helper()
	cmd := exec.Command(binary, append(args, "--admin", a.admin)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// signals returns what the agent knows from its engines.
func (a *agent) signals() (list []signal) {
	a.t.Helper()
	out := a.run(nil, "status", "--signals", "--json")
	if err := json.Unmarshal(out, &list); err != nil {
		a.t.Fatalf("status --signals: %v\n%s", err, out)
	}
	return list
}

// ages explains body and returns the age of each replica's signals in seconds, or
// -1 for none.
func (a *agent) ages(body []byte) map[string]float64 {
	a.t.Helper()
	var x struct {
		Server     string `json:"server"`
		Candidates []struct {
			Replica string   `json:"replica"`
			Age     *float64 `json:"signal_age_s"`
		} `json:"candidates"`
	}
	out := a.run(body, "explain", "--json")
	if err := json.Unmarshal(out, &x); err != nil || x.Server == "" {
		a.t.Fatalf("explain: %v\n%s", err, out)
	}
	ages := map[string]float64{}
	for _, c := range x.Candidates {
		ages[c.Replica] = -1
		if c.Age != nil {
			ages[c.Replica] = *c.Age
		}
	}
	return ages
}

// TestEnginesFallSilent has every engine fall silent in the midst of traffic, its
// metrics and the events of its KV cache, each in its own way. No request fails,
// decisions go on by what the proxy reports, and the age of the signals shows.
// Later they come again.
func TestEnginesFallSilent(t *testing.T) {
	onEach(t, newest(t), func(t *testing.T, r release) {
		t.Parallel()
		enginesFallSilent(t, r)
	})
}

func enginesFallSilent(t *testing.T, r release) {
	const other = "other-model"
	var engines []*engine
	var gates []*gate
	var list []string
	for i := range 3 {
		name := fmt.Sprintf("r%d", i+1)
		o := engineOptions{
			Models: []string{model, other},
			Events: "tcp://" + freeAddress(t), Replay: "tcp://" + freeAddress(t),
		}
		e := startEngine(t, name, o)
		if err := e.sim.Publish(); err != nil {
			t.Fatal(err)
		}
		events, replay := newGate(t, strings.TrimPrefix(o.Events, "tcp://")), newGate(t, strings.TrimPrefix(o.Replay, "tcp://"))
		engines, gates = append(engines, e), append(gates, events, replay)
		list = append(list, fmt.Sprintf("%s: {address: %q, kv_events: {port: %s, replay: %s}}", name, e.address, events.port(), replay.port()))
	}
	replicas := "{" + strings.Join(list, ", ") + "}"
	s := newSite(t, r, fmt.Sprintf(`pools:
  %s: {models: [%s], engine: vllm, policy: kv_aware, replicas: %s}
  other: {models: [%s], engine: vllm, policy: least_work, replicas: %[3]s}
`, pool, model, replicas, other))
	s.start()

	// Each prompt is new to the engines, for either pool in turn.
	prompt := func(i int) []byte {
		m := model
		if i%2 == 1 {
			m = other
		}
		return chat(m, 600, 8, i%4 < 2, 131*i)
	}
	var mu sync.Mutex
	sent := 0
	tr := startTrafficOf(t, s.front, 6, func(int) call {
		mu.Lock()
		defer mu.Unlock()
		sent++
		return call{body: prompt(sent)}
	})
	fresh := func(what string) {
		t.Helper()
		batches := s.agent.signals()
		eventually(t, 20*time.Second, what, func() (bool, string) {
			now := s.agent.signals()
			ok := len(now) == 6
			for i, g := range now {
				ok = ok && g.Age >= 0 && g.Age < 2 && g.Error == "" && i < len(batches)
				if ok && g.Pool == pool {
					ok = g.Blocks != nil && batches[i].Blocks != nil && g.Blocks.Online == 1 && g.Blocks.Batches > batches[i].Blocks.Batches
				}
			}
			return ok, fmt.Sprintf("%+v", now)
		})
	}
	fresh("every engine sends")
	tr.await(200)

	for i, how := range []string{`{"path":"/metrics","hang":true}`, `{"path":"/metrics","status":500}`, `{"path":"/metrics","die_after":0}`} {
		fault(t, engines[i], how)
	}
	for _, g := range gates {
		g.shut()
	}
	silent := time.Now()
	var before map[string]float64
	for _, age := range []float64{2, 5.5} { // after 5 s the caches are predicted
		eventually(t, 20*time.Second, "ages grow", func() (bool, string) {
			ok, ages := true, s.agent.ages(prompt(0))
			for r, a := range ages {
				ok = ok && a >= age && a > before[r]
			}
			if ok {
				before = ages
			}
			return ok && len(ages) == len(engines), fmt.Sprint(ages)
		})
		tr.await(100)
	}
	for _, g := range s.agent.signals() {
		if g.Age < 5 || g.Error == "" && g.Replica != "r1" || g.Blocks != nil && g.Blocks.Online != 0 { // r1 hangs, which is known later
			t.Errorf("silent for %v: %+v", time.Since(silent), g)
		}
	}
	if table := string(s.agent.run(nil, "status", "--signals", "--once")); strings.Count(table, "offline") != 3 {
		t.Errorf("status --signals:\n%s", table)
	}
	// By its own counts the agent spreads what takes long.
	client := newClient(12, true, false)
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			c := call{body: prompt(10_001 + 2*i), header: map[string]string{"X-Hold": "1"}}
			if err := c.check(c.do(client, s.front)); err != nil {
				t.Errorf("while they are silent: %v", err)
			}
		})
	}
	var by []int
	eventually(t, 10*time.Second, "they are in flight", func() (bool, string) {
		by = []int{engines[0].holds(), engines[1].holds(), engines[2].holds()}
		return by[0]+by[1]+by[2] == 12, fmt.Sprint(by)
	})
	if slices.Min(by) < 2 || slices.Max(by) > 6 {
		t.Errorf("12 long requests went to %v", by)
	}
	for _, e := range engines {
		e.release()
	}
	all.Wait()

	for _, e := range engines {
		e.recovers(t)
	}
	for _, g := range gates {
		g.open()
	}
	fresh("every engine sends again")
	eventually(t, 5*time.Second, "explain shows that every signal is fresh", func() (bool, string) {
		ages := s.agent.ages(prompt(0))
		ok := len(ages) == len(engines)
		for _, a := range ages {
			ok = ok && a >= 0 && a <= 3
		}
		return ok, fmt.Sprint(ages)
	})
	tr.await(200)
	n := tr.stop()
	for _, name := range []string{pool, "other"} {
		if p := s.agent.settled(name); p.FellOpen != 0 || p.Outcomes["served"] != p.ended() {
			t.Errorf("of %d requests: %+v", n, p)
		}
	}
	s.untroubled()
}
