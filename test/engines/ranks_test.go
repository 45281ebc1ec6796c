package engines

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestRanks has one vLLM with data parallelism, whose ranks are replicas of their own:
// the engine obeys the rank of the decision, the load and the KV-cache events of each
// rank are its own, and a conversation returns to the rank that has it.
func TestRanks(t *testing.T) {
	v := ranked(t)
	n := 8 // conversations
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: %s, data_parallel: %d, max_requests: 0, replicas: {v: {address: %q, kv_events: {port: %d, replay: %d}}}}}\n",
			rig.Pool, rig.Model, exactly, v.ranks, v.address, v.events, v.replay))
		s.Patient()
		s.Start()
		known := func(blocks int) {
			t.Helper()
			found(t, s, v.ranks, func(g rig.Signal) bool {
				return g.Engine == "vllm" && g.Age < 10 && g.Cache == vllmBlock*vllmBlocks && g.Blocks != nil && g.Blocks.Online == 1 && g.Blocks.Blocks >= blocks
			})
		}
		known(0)
		x := ranks{vllm: v, site: s}
		x.begin(t)
		list := talks(n, 4, 130)
		for i := range list { // with a block in common all might follow the first one to its rank
			list[i].agent = fmt.Sprintf("%d of %d. ", list[i].talk, n)
		}
		w := workload{site: s, client: client(t), block: vllmBlock, predicted: true}
		run := func(turns []turn) {
			for _, u := range turns {
				w.run(t, []turn{u})
				x.obeyed(t)
			}
		}
		half := 3 * n
		run(list[:half])
		for rank, served := range x.served(t) {
			if served == 0 {
				t.Errorf("rank %d has no requests", rank)
			}
		}
		known(1)
		t.Run("load", x.load)
		s.Agent.Kill()
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		known(1) // by replay
		x.begin(t)
		run(list[half:])
		w.judge(t)
		n++ // the next proxy has other conversations
		t.Run("Responses", func(t *testing.T) { x.responses(t, w.client) })
		s.Idle(s.Agent.Settled(rig.Pool))
		for _, g := range s.Agent.Signals() {
			t.Logf("%s: %+v", g.Replica, *g.Blocks)
		}
	})
}

// TestRankDies kills the core of one of two ranks under load. The whole server ends, which
// takes it seconds, and its port is open for longer. Requests are not sent there any more
// as soon as the agent has seen it.
func TestRankDies(t *testing.T) {
	v := ranked(t)
	v1, _, _ := vllms(t)
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		if !v.serves() {
			v.start(t)
		}
		awaitHealth(t, v.name, v.address)
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, max_requests: 0, replicas: {%s: {address: %q}, %s: {address: %q}}}}\n",
			rig.Pool, rig.Model, v.name, v.address, v1.name, v1.address))
		s.Patient()
		s.Start()
		found(t, s, 2, func(g rig.Signal) bool { return g.Engine == "vllm" && g.Age < 2 })
		c := client(t)
		send := func(most *time.Duration) bool {
			begin := time.Now()
			a := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"hello, is there anybody?"}]}`, rig.Model)}.Do(c, s.Front)
			*most = max(*most, time.Since(begin))
			return a.Status == http.StatusOK && a.Err == nil
		}
		sent := func() int { return s.Agent.Pool(rig.Pool).Replica(v.name).Chosen }
		rig.Eventually(t, time.Minute, "it serves", func() (bool, string) {
			var took time.Duration
			return send(&took) && sent() > 3, ""
		})
		before := sent()
		killProcess(t, v.core(t))
		killed := time.Now()
		quit := make(chan struct{})
		stop := sync.OnceFunc(func() { close(quit) })
		defer stop()
		var clients sync.WaitGroup
		var answered, failed atomic.Int32
		slowest := make([]time.Duration, 8)
		for i := range slowest {
			clients.Go(func() {
				for {
					select {
					case <-quit:
						return
					case <-time.After(20 * time.Millisecond):
					}
					if send(&slowest[i]) {
						answered.Add(1)
					} else {
						failed.Add(1)
					}
				}
			})
		}
		rig.Eventually(t, 20*time.Second, "it is left out", func() (bool, string) {
			state := s.Agent.Pool(rig.Pool).Replica(v.name).State
			return state != "up", state
		})
		out, then := time.Since(killed), sent()
		time.Sleep(4 * time.Second) // what is looked for is what does not happen
		if now := sent(); now != then {
			t.Errorf("%d requests were sent to the dead server after it was left out", now-then)
		}
		stop()
		clients.Wait()
		if answered.Load() < 100 {
			t.Errorf("only %d requests were answered", answered.Load())
		}
		t.Logf("left out %v after the death; %d requests were sent to the dead server; %d failed, %d were answered, the slowest after %v", out.Round(10*time.Millisecond), then-before, failed.Load(), answered.Load(), slices.Max(slowest).Round(time.Millisecond))
		v.kill(t)
		v.start(t)
		awaitHealth(t, v.name, v.address)
		s.AwaitState(v.name, time.Minute, "up")
	})
}

// ranks compares which rank an engine says has served with which one was chosen.
type ranks struct {
	vllm  *vllm
	site  *rig.Site
	ended []float64 // requests by rank when begin was called
	chose []int
}

// of are the samples of each rank.
func (x *ranks) of(t testing.TB, name string) (list []float64) {
	t.Helper()
	for rank := range x.vllm.ranks {
		list = append(list, labelled(t, x.vllm.address, name, fmt.Sprintf("engine=%q", fmt.Sprint(rank))))
	}
	return list
}

// status is the status of each rank's replica.
func (x *ranks) status() (list []rig.ReplicaStatus) {
	p := x.site.Agent.Pool(rig.Pool)
	for rank := range x.vllm.ranks {
		list = append(list, p.Replica(fmt.Sprintf("v-dp%d", rank)))
	}
	return list
}

const ended = "vllm:request_success_total"

func (x *ranks) begin(t testing.TB) {
	t.Helper()
	x.ended, x.chose = x.of(t, ended), nil
	for _, r := range x.status() {
		x.chose = append(x.chose, r.Served)
	}
}

// served is how many requests each rank has served since begin, as the engine says.
func (x *ranks) served(t testing.TB) (list []int) {
	t.Helper()
	for rank, n := range x.of(t, ended) {
		list = append(list, int(n-x.ended[rank]))
	}
	return list
}

// chosen is how many requests were served by decisions for each rank since begin.
func (x *ranks) chosen() (list []int) {
	for rank, r := range x.status() {
		list = append(list, r.Served-x.chose[rank])
	}
	return list
}

// obeyed waits until as many requests have ended on each rank as were sent there.
func (x *ranks) obeyed(t testing.TB) {
	t.Helper()
	rig.Eventually(t, time.Minute, "the engine has obeyed the rank of the decision", func() (bool, string) {
		served, chosen := x.served(t), x.chosen()
		return slices.Equal(served, chosen), fmt.Sprintf("chosen %v, served %v", chosen, served)
	})
}

// load has a request run on one rank, and no other rank counts as loaded.
func (x *ranks) load(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := rig.Call{Body: endless}.Request(ctx, x.site.Front, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	same := func(sum int) {
		t.Helper()
		rig.Eventually(t, time.Minute, fmt.Sprintf("%d requests run, on the rank that was chosen", sum), func() (bool, string) {
			var chosen, reported, running []int
			total := 0
			for _, r := range x.status() {
				chosen = append(chosen, r.InFlight)
			}
			for _, g := range x.site.Agent.Signals() {
				reported = append(reported, g.Running)
			}
			for _, n := range x.of(t, "vllm:num_requests_running") {
				running = append(running, int(n))
				total += int(n)
			}
			return total == sum && slices.Equal(chosen, reported) && slices.Equal(reported, running),
				fmt.Sprintf("chosen %v, reported %v, running %v", chosen, reported, running)
		})
	}
	same(1)
	cancel()
	same(0)
	x.site.Agent.Settled(rig.Pool)
}

// responses sends requests by an API in which vLLM 0.32 does not obey the rank, and
// reports on which ranks they ran.
func (x *ranks) responses(t *testing.T, c *http.Client) {
	x.begin(t)
	const n = 6
	for i := range n {
		body := fmt.Appendf(nil, `{"model":%q,"max_output_tokens":2,"input":"response %d of some"}`, rig.Model, i)
		usageOf(t, rig.Call{Path: "/v1/responses", Body: body}.Do(c, x.site.Front))
	}
	rig.Eventually(t, time.Minute, "all are served", func() (bool, string) {
		served, chosen := x.served(t), x.chosen()
		sum := func(list []int) (n int) {
			for _, k := range list {
				n += k
			}
			return n
		}
		return sum(served) == n && sum(chosen) == n, fmt.Sprintf("chosen %v, served %v", chosen, served)
	})
	t.Logf("Responses: chosen %v, served %v", x.chosen(), x.served(t))
}
