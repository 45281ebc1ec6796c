package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestMixed sends every kind of request that the proxies are for, with clients
// that leave at every stage. None fails, the bodies arrive whole, and the agent
// learns the outcome of each.
func TestMixed(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		n := 1000
		if r.Newest && !rig.Raced {
			n = 5000
		}
		if rig.Soak {
			n = 100_000
		}
		s, engines := rig.Replicas(t, r, 4, "least_work")
		s.Edit("policy: least_work, max_requests: 0, ", "") // as by default
		s.Patient()
		s.Start()
		m := sendMixture(t, s, n)

		p := s.Agent.Settled(rig.Pool)
		s.Idle(p)
		blamed := 0
		for _, r := range p.Replicas {
			if r.State != "up" && (s.Can.KnowsWhoBroke || r.State != rig.Ejected) {
				t.Errorf("replica at the end: %+v", r)
			}
			blamed += r.Failed
			// Clients that left may have done so with the answer on its way.
			if seen := m.served[r.Name]; r.Served < seen || r.Served > seen+m.aborted {
				t.Errorf("%s served %d, its clients saw %d (%d left)", r.Name, r.Served, seen, m.aborted)
			}
		}
		for _, name := range []string{"server_mismatch_total", "undecided_total", "reservations_adopted_total", "outcomes_unreserved_total"} {
			if v := s.Count(name); v != 0 {
				t.Errorf("%s is %d, want 0", name, v)
			}
		}
		// Whatever was reserved has ended by an outcome. Clients that left before
		// their decision have one too if HAProxy had gone to the pool, and so has
		// one who left before HAProxy could ask.
		most := p.Decisions
		if !s.Can.KnowsWhoBroke {
			most = m.completed + m.aborted
		}
		if reserved := p.Decisions - s.Count("client_gone_before_decision_total"); p.Ended() < reserved || p.Ended() > most {
			t.Errorf("%d decisions, %d reservations, %d outcomes: %v", p.Decisions, reserved, p.Ended(), p.Outcomes)
		}
		if p.Decisions < m.completed || p.Decisions > m.completed+m.aborted {
			t.Errorf("%d decisions for %d complete and %d aborted requests", p.Decisions, m.completed, m.aborted)
		}
		if p.Outcomes["served"] < m.completed {
			t.Errorf("%d outcomes served, want at least %d", p.Outcomes["served"], m.completed)
		}
		for _, end := range []string{"failed", "refused", "timed_out"} {
			if p.Outcomes[end] != 0 {
				t.Errorf("%d outcomes %s, want none", p.Outcomes[end], end)
			}
		}
		// HAProxy passes on the leave of a client over HTTP/1 to the engine. When
		// the engine has closed in its turn before HAProxy has noted why, it logs
		// that the engine broke off (SD), and none of its fields says otherwise. How
		// often depends on how the machine schedules the two.
		died := p.Outcomes["died"]
		if s.Can.KnowsWhoBroke && died != 0 || died > m.mustBeGone/2 || blamed != died {
			t.Errorf("%d outcomes died of %d streams that clients left, %d blamed on replicas", died, m.mustBeGone, blamed)
		}
		if gone := p.Outcomes["client_gone"]; gone < m.mustBeGone-died || gone > m.aborted {
			t.Errorf("%d outcomes client_gone, want %d to %d", gone, m.mustBeGone-died, m.aborted)
		}
		s.Untroubled()
		for _, e := range engines {
			// A client that leaves takes its work with it.
			rig.Eventually(t, 5*time.Second, e.Name+" is idle", func() (bool, string) {
				a := rig.Call{Method: "GET", Path: "/metrics"}.Do(http.DefaultClient, e.Address)
				return bytes.Contains(a.Body, []byte("\nvllm:num_requests_running{engine=\"0\",model_name=\""+rig.Model+"\"} 0\n")), string(a.Body)
			})
		}
		t.Logf("%d complete, %d aborted: %v", m.completed, m.aborted, p.Outcomes)
	})
}

// mixture is what came of a mixture of requests.
type mixture struct {
	mu                 sync.Mutex
	completed, aborted int
	mustBeGone         int // left after they had been decided, before the end
	served             map[string]int
}

// stage is where a client leaves.
type stage int

const (
	never stage = iota
	inBody
	beforeHeaders
	inStream
	stages
)

// sendMixture sends n requests from some clients at a time.
func sendMixture(t *testing.T, s *rig.Site, n int) *mixture {
	const clients = 24
	m := &mixture{served: map[string]int{}}
	h1, h2 := rig.NewClient(clients, true, false), rig.NewClient(clients, true, true)
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && failed.Load() < 20; i = next.Add(1) {
				r := rand.New(rand.NewPCG(42, uint64(i)))
				client, host := h1, s.Front
				if r.IntN(4) == 0 {
					client, host = h2, s.Front2
				}
				if err := m.send(r, client, host); err != nil {
					failed.Add(1)
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	return m
}

// send sends one request, drawn from r.
func (m *mixture) send(r *rand.Rand, client *http.Client, host string) error {
	// Sizes from 100 B to 2 MB, evenly by their logarithm.
	size := int(100 * math.Exp(r.Float64()*math.Log(20_000)))
	kind, stream, leave := r.IntN(8), r.IntN(2) == 0, never
	if r.IntN(5) == 0 {
		leave = 1 + stage(r.IntN(int(stages)-1))
	}
	c := rig.Call{Chunked: r.IntN(3) == 0, Header: map[string]string{"X-Session-Id": fmt.Sprint("s", r.IntN(50)), "X-Pointsman-Server": "r1"}}
	switch {
	case leave == inStream:
		c.Body = rig.Chat(rig.Model, size, 100_000, true, r.IntN(1<<20))
	case leave == beforeHeaders:
		c.Body = rig.Chat(rig.Model, size, 5, stream, r.IntN(1<<20))
		c.Header["X-Fake-Delay"] = "20s"
	case kind == 0:
		c.Path = "/v1/completions"
		c.Body = fmt.Appendf(nil, `{"prompt":%q,"max_tokens":5,"stream":%t,"model":%q}`, rig.Fill(min(size, 50_000), r.IntN(1<<20)), stream, rig.Model)
	case kind == 1:
		c.Path = "/v1/embeddings"
		c.Body = fmt.Appendf(nil, `{"model":%q,"input":[%q,"x"]}`, rig.Model, rig.Fill(min(size, 50_000), r.IntN(1<<20)))
	default:
		c.Body = rig.Chat(rig.Model, size, 1+r.IntN(40), stream, r.IntN(1<<20))
	}
	if leave != never {
		return m.abort(r, client, host, c, leave)
	}
	a := c.Do(client, host)
	if err := c.Check(a); err != nil {
		return fmt.Errorf("%s, %d bytes, chunked %t, stream %t: %w", c.Path, len(c.Body), c.Chunked, stream, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.completed++
	m.served[a.Engine]++
	return nil
}

// abort sends c and leaves at a stage. It fails when the request could not be
// brought to that stage.
func (m *mixture) abort(r *rand.Rand, client *http.Client, host string, c rig.Call, leave stage) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.mu.Lock()
	m.aborted++
	if leave == inStream {
		m.mustBeGone++
	}
	m.mu.Unlock()
	pause := time.Duration(r.IntN(20_000)) * time.Microsecond
	var body io.Reader
	switch leave {
	case inBody:
		body = io.MultiReader(bytes.NewReader(c.Body[:len(c.Body)/2]), unfinished{ctx, cancel, pause})
	case beforeHeaders:
		// From before the question to the agent until long after its answer.
		time.AfterFunc(pause, cancel)
	}
	req, err := c.Request(ctx, host, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		if leave == inStream {
			return fmt.Errorf("before its stream: %w", err)
		}
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("left at stage %d: %w", leave, err)
		}
		return nil
	}
	defer resp.Body.Close()
	if leave != inStream {
		return fmt.Errorf("left at stage %d, but was answered: %s", leave, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("stream to be left: %s", resp.Status)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 200+r.IntN(5000))); err != nil {
		return fmt.Errorf("stream to be left: %w", err)
	}
	return nil // cancels
}

// unfinished is the rest of a body that never comes: the client leaves.
type unfinished struct {
	ctx    context.Context
	cancel func()
	after  time.Duration
}

func (l unfinished) Read([]byte) (int, error) {
	time.AfterFunc(l.after, l.cancel)
	<-l.ctx.Done()
	return 0, l.ctx.Err()
}
