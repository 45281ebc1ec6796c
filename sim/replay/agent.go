package replay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/intake"
	"pointsman/sim"
	"pointsman/sim/trace"
)

// agent is one pointsman agent: a decider on the simulation's clock.
type agent struct {
	name    string
	decider *decider.Decider
	pool    *decider.Pool
	request intake.Request
}

// newAgent makes agent number n.
func newAgent(s *simulation, blockTokens, n int) (*agent, error) {
	policy, err := s.o.Policy()
	if err != nil {
		return nil, err
	}
	seeds := rand.New(rand.NewPCG(s.o.Seed, 0x6167656e74+uint64(n)))
	a := &agent{
		name:    fmt.Sprintf("agent%d", n),
		decider: decider.New(func() time.Duration { return s.now }, seeds.Uint64),
	}
	if s.o.Share > 0 && s.o.Agents > 1 {
		a.decider.Sharing = decider.Sharing{Agent: a.name, Journal: journal{s, a}}
	}
	c := decider.PoolConfig{
		Name: poolName, Policy: policy, PolicyName: s.o.PolicyName, PolicyKey: s.o.PolicyName,
		BlockTokens: blockTokens, CacheTokens: int(float64(s.o.CacheTokens) * s.o.CacheScale),
		CPUCacheTokens: int(float64(s.o.CPUCacheTokens) * s.o.CacheScale),
	}
	if s.o.Prefill > 0 {
		if c.PrefillPolicy, err = s.o.Policy(); err != nil {
			return nil, err
		}
	}
	if c.Admission = s.o.Admission; c.Admission != nil {
		delayed := *c.Admission
		delayed.FeedbackDelay = s.o.FeedbackDelay
		c.Admission = &delayed
	}
	for i := range s.engines {
		c.Replicas = append(c.Replicas, s.replicaConfig(i))
	}
	a.decider.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	a.pool = a.decider.Pool(poolName)
	a.followBlocks(s)
	return a, nil
}

// followBlocks reports each block that an engine stores or removes to the pool,
// if its policy uses token blocks.
func (a *agent) followBlocks(s *simulation) {
	if a.pool.Tokens() == nil {
		return
	}
	for i, e := range s.engines {
		name := s.names[i]
		follower := a.pool.Engine(name).FollowBlocks()
		var change [1]decider.BlockChange
		report := func(key uint64, stored bool, tier kvcache.Tier) {
			change[0] = decider.BlockChange{Key: key, Stored: stored, Tier: tier}
			a.pool.Engine(name).ChangeBlocks(follower, change[:])
		}
		e.Follow(func(j *sim.Job, i int) { report(j.Blocks[i], true, kvcache.GPU) }, func(key uint64) { report(key, false, kvcache.GPU) })
		e.FollowOffloaded(func(key uint64) { report(key, true, kvcache.CPU) }, func(key uint64) { report(key, false, kvcache.CPU) })
	}
}

func replicaName(i int) string { return fmt.Sprintf("r%d", i) }

// replicaIndex returns the replica of that name, or -1.
func (s *simulation) replicaIndex(name string) int {
	if i, ok := s.byName[name]; ok {
		return i
	}
	return -1
}

// decide lets the next agent choose a replica for f: at once, or when it leaves the
// router's queue.
func (s *simulation) decide(f *flight) {
	if s.isForeign() {
		s.sendForeign(f)
		return
	}
	f.agent = s.agents[s.decisions%len(s.agents)]
	s.decisions++
	binary.BigEndian.PutUint64(f.id[:], uint64(s.decisions))
	binary.BigEndian.PutUint64(f.id[8:], s.random.Uint64())
	f.input = s.withNoise(f.request.Estimate)
	if !s.router.park(f) {
		s.choose(f)
	}
}

// choose lets f's agent choose a replica for it, and sends f there as the proxy would.
func (s *simulation) choose(f *flight) {
	a := f.agent
	request, waiter := &a.request, decider.Waiter(nil)
	if s.o.Admission != nil {
		held := &heldRequest{simulation: s, flight: f}
		request, waiter = &held.request, held
	}
	request.Request = s.decisionRequest(f)
	if request.Submit(waiter) {
		s.load.add(-1, 1)
		return
	}
	s.send(f, &request.Decision)
	s.router.sent(f, request.Decision.Cost)
}

// decisionRequest is f as its agent knows it.
func (s *simulation) decisionRequest(f *flight) decider.Request {
	r := f.request
	return decider.Request{
		ID: f.id, Pool: f.agent.pool, Session: s.session(r), HasSession: r.HasSession,
		Input: f.input, Output: s.maxTokens(r), Blocks: r.Visible, Stream: r.Stream, Cut: r.Truncated,
		Band: r.Band, Tenant: r.Tenant,
	}
}

// session is the session of a request. The seed moves sessions to other replicas.
func (s *simulation) session(r *trace.Request) uint64 { return trace.Hash(r.Session + s.o.Seed) }

// maxTokens is the max_tokens of a request, -1 if it has none.
func (s *simulation) maxTokens(r *trace.Request) int {
	switch {
	case s.o.MaxTokens > 0:
		return s.o.MaxTokens
	case r.MaxTokens > 0:
		return r.MaxTokens
	}
	return -1
}

// heldRequest is a request that waits in its agent.
type heldRequest struct {
	simulation *simulation
	flight     *flight
	request    intake.Request
}

// Decided implements decider.Waiter. It is called with the pool locked, so the
// request is sent later.
func (h *heldRequest) Decided() { h.simulation.dispatched = append(h.simulation.dispatched, h) }

// sendDispatched sends the dispatched requests, and those that this dispatches
// in turn.
func (s *simulation) sendDispatched() {
	for len(s.dispatched) > 0 {
		h := s.dispatched[0]
		s.dispatched = s.dispatched[1:]
		s.load.add(-1, -1)
		s.send(h.flight, &h.request.Decision)
	}
}

// withNoise returns an agent's estimate of n tokens.
func (s *simulation) withNoise(n int) int {
	if s.o.TokenNoise == 0 {
		return n
	}
	return max(1, int(float64(n)*(1+s.o.TokenNoise*(2*s.random.Float64()-1))))
}

// send sends f to the server of d or, if that is dead, to a fallback or any
// other replica that is alive.
func (s *simulation) send(f *flight, d *decider.Decision) {
	if d.Status != 0 {
		s.load.add(f.replica, 1)
		s.end(f, flightShed)
		return
	}
	chosen := s.replicaIndex(d.Server)
	k := chosen
	for _, name := range d.Fallbacks {
		if k < 0 || s.dead[k] {
			k = s.replicaIndex(name)
		}
	}
	for range s.engines {
		if k >= s.o.Prefill && !s.dead[k] && (k == chosen || !s.away[k]) {
			break
		}
		s.fallback++
		k = s.fallback % len(s.engines)
	}
	if s.dead[k] {
		s.load.add(f.replica, 1)
		s.end(f, flightFailed)
		return
	}
	f.replica, f.redirected = k, k != chosen
	if d.Prefill != "" {
		s.sendLeg(f, s.replicaIndex(d.Prefill))
		return
	}
	if s.submit(k, f) {
		s.report(eventConnected, f)
	}
}

// submit submits f to engine k and reports whether the engine accepts it.
func (s *simulation) submit(k int, f *flight) bool {
	s.load.add(k, 1)
	return s.queue(k, f)
}

// queue is submit for a request that counts there already.
func (s *simulation) queue(k int, f *flight) bool {
	if err := s.engines[k].Submit(s.now, &f.job); err != nil {
		s.end(f, flightRefused)
		return false
	}
	s.schedule(k)
	return true
}

var _ decider.Waiter = (*heldRequest)(nil)
