package page

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/admin"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/engine/tokenize"
	"pointsman/intake"
	"pointsman/link"
	"pointsman/session"
)

// site is an admin endpoint whose pools have served requests for some minutes, by a
// clock of their own.
type site struct {
	t       testing.TB
	server  *admin.Server
	decider *decider.Decider
	address string
	rng     *rand.Rand
	now     atomic.Int64 // of the decider's clock
	start   time.Time
	ends    map[int][]func() // by second
	id      int
	links   []*link.Link
	granted []*held
}

func newSite(t testing.TB, replicas int) *site {
	t.Helper()
	s := &site{t: t, rng: rand.New(rand.NewPCG(1, 2)), ends: map[int][]func(){}}
	s.decider = decider.New(s.clock, s.rng.Uint64)
	in := intake.New(s.decider)
	set := metrics.NewSet()
	in.Tokenizer = tokenize.New(set)
	list := func(prefix string, n int) (list []decider.ReplicaConfig) {
		for i := range n {
			list = append(list, decider.ReplicaConfig{Name: prefix + strconv.Itoa(i+1), Address: fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)})
		}
		return list
	}
	chat := decider.PoolConfig{
		Name: "llama-70b", Models: []string{"meta-llama/Llama-3.3-70B-Instruct", "chat"}, Policy: policy.LeastWork{}, PolicyName: "least_work",
		Replicas: list("r", replicas), Limit: 64,
	}
	config := intake.Config{Session: session.NewHeaders([]string{"x-session-id"}), Pools: []decider.PoolConfig{chat}}
	if replicas < 1000 {
		config.Pools[0].Admission = &decider.Admission{
			Hold: true, TenantWeights: map[string]int{"gold": 3},
			Bands: []queue.Band{{Name: "chat", MaxRequests: 1000}, {Name: "agents", Weight: 3, MaxRequests: 1000}, {Name: "batch", Weight: 1, MaxRequests: 5000}},
		}
		config.Pools = append(config.Pools, decider.PoolConfig{
			Name: "embed", Models: []string{"bge-m3"}, Policy: policy.LeastTokens{}, PolicyName: "least_tokens", Replicas: list("e", 4),
		})
	}
	in.Apply(config)
	s.links = []*link.Link{
		{Proxy: "haproxy", Connections: func() int { return 4 }, FeedConnections: func() int { return 2 }},
		{Proxy: "nginx", Connections: func() int { return 8 }},
	}
	s.links[0].SetVersion("3.2.4")
	s.server = admin.New(in, set, "v0.9.0")
	s.server.Links = s.links
	s.server.Config = func() ([]byte, error) { return []byte("pools:\n  llama-70b:\n    policy: least_work\n"), nil }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = "http://" + l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(l) }()
	t.Cleanup(func() {
		_ = s.server.Shutdown() // the browser may keep a connection open
		l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.start = time.Now().Add(-time.Duration(minutes) * time.Minute)
	return s
}

func (s *site) clock() time.Duration { return time.Duration(s.now.Load()) }

// minutes is how long the pools have served.
const minutes = 6

// run lets the pools serve, up to the present.
func (s *site) run(perSecond int) {
	chat := s.decider.Pools()[0]
	for second := range minutes * 60 {
		s.now.Store(int64(time.Duration(second) * time.Second))
		for _, end := range s.ends[second] {
			end()
		}
		delete(s.ends, second)
		wave := 1 + float64((second/45)%3)/2
		for range int(float64(perSecond) * wave) {
			s.request(chat, second)
		}
		if len(s.decider.Pools()) > 1 {
			s.request(s.decider.Pools()[1], second)
		}
		if second%2 == 0 {
			s.engines(chat)
		}
		s.decider.Dispatch()
		for _, h := range s.granted {
			s.serve(h, second)
		}
		s.granted = s.granted[:0]
		for _, l := range s.links {
			l.Tick(s.start.Add(s.clock()))
		}
		s.server.Sample(s.start.Add(s.clock()))
	}
	for _, l := range s.links {
		l.LineRead(time.Now())
	}
	if replicas := chat.Status().Replicas; len(replicas) > 40 {
		chat.Discovered([]decider.ReplicaState{{Name: "r13", Weight: 1}, {Name: "r22", Up: true, Draining: true, Weight: 1}})
	}
}

// request is decided, served and ended some seconds later. Sessions come back with
// longer prompts.
func (s *site) request(p *decider.Pool, second int) {
	s.id++
	turn, conversation := s.rng.IntN(12)+1, s.rng.IntN(400)
	r := &decider.Request{Pool: p, Model: "chat", Output: 400, Stream: true, HasSession: true, Session: uint64(conversation), Band: s.rng.IntN(3)}
	copy(r.ID[:], strconv.FormatInt(int64(s.rng.Uint32())<<20+int64(s.id), 16))
	for b := range turn * 3 {
		r.Blocks = append(r.Blocks, uint64(conversation*1000+b+1))
	}
	r.Input = len(r.Blocks)*decider.DefaultBlockTokens + 100
	if p.Name() == "embed" {
		r.Model, r.Input, r.Output, r.Stream, r.HasSession, r.Blocks = "bge-m3", 300, 0, false, false, nil
	}
	if p.Name() == "llama-70b" && r.Band == 2 {
		r.HasSession = false
	}
	h := &held{site: s, request: r}
	s.links[s.id%2].Asked(s.start.Add(s.clock()))
	if !p.Submit(r, &h.decision, h) {
		s.serve(h, second)
	}
}

// held is a request that may wait for its decision.
type held struct {
	site     *site
	request  *decider.Request
	decision decider.Decision
}

// Decided is called with the pool locked.
func (h *held) Decided() { h.site.granted = append(h.site.granted, h) }

// serve has the replica that was chosen answer.
func (s *site) serve(h *held, second int) {
	r, p := h.request, h.request.Pool
	s.links[s.id%2].Ended(s.id%500 != 0, false)
	if h.decision.Server == "" {
		return
	}
	server := []byte(h.decision.Server)
	took := 3 + s.rng.IntN(25)
	s.ends[second+1] = append(s.ends[second+1], func() { p.FirstToken(r.ID, server) })
	s.ends[second+1+took] = append(s.ends[second+1+took], func() {
		o := decider.Outcome{ID: r.ID, Server: server, End: decider.Served, Status: 200, TTFT: 300 * time.Millisecond}
		if s.rng.IntN(400) == 0 {
			o.End, o.Status = decider.Failed, 502
		}
		p.Finished(o)
	})
}

// engines report their load; two have fallen silent.
func (s *site) engines(p *decider.Pool) {
	for i, r := range p.Status().Replicas {
		if i == 6 && s.clock() > 2*time.Minute || i == 17 {
			continue
		}
		e := p.Engine(r.Name)
		e.Signals(decider.Signals{Running: r.InFlight, KVUsage: min(1, float64(r.Tokens)/450000), CacheTokens: 500_000})
		e.Prompts(r.Tokens/20, r.Tokens/20, r.Tokens/20*6/10)
	}
}
