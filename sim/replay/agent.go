package replay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"pointsman/decider"
	"pointsman/sim"
	"pointsman/sim/trace"
)

// agent is one pointsman: a decider on the clock of the playback.
type agent struct {
	decider  *decider.Decider
	pool     *decider.Pool
	request  decider.Request
	decision decider.Decision
}

// newAgent makes the agent number n.
func newAgent(p *playback, blockTokens, n int) (*agent, error) {
	policy, err := p.o.Policy()
	if err != nil {
		return nil, err
	}
	seeds := rand.New(rand.NewPCG(p.o.Seed, 0x6167656e74+uint64(n)))
	a := &agent{decider: decider.New(func() time.Duration { return p.now }, seeds.Uint64)}
	c := decider.PoolConfig{
		Name: poolName, Policy: policy, PolicyName: p.o.PolicyName, PolicyKey: p.o.PolicyName,
		BlockTokens: blockTokens, CacheTokens: int(float64(p.o.CacheTokens) * p.o.MirrorScale),
	}
	if c.Admission = p.o.Admission; c.Admission != nil {
		late := *c.Admission
		late.FeedbackDelay = p.o.FeedbackDelay
		c.Admission = &late
	}
	for i := range p.fleet {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: replicaName(i)})
	}
	a.decider.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	a.pool = a.decider.Pool(poolName)
	a.follow(p)
	return a, nil
}

// follow has the pool of a policy that looks at tokens hear of each block that
// comes and goes in the engines.
func (a *agent) follow(p *playback) {
	if a.pool.Tokens() == nil {
		return
	}
	for i, e := range p.fleet {
		name := p.replicas[i]
		follower := a.pool.Engine(name).FollowBlocks()
		var change [1]decider.BlockChange
		tell := func(key uint64, stored bool) {
			change[0] = decider.BlockChange{Key: key, Stored: stored}
			a.pool.Engine(name).ChangeBlocks(follower, change[:])
		}
		e.Follow(func(j *sim.Job, i int) { tell(j.Blocks[i], true) }, func(key uint64) { tell(key, false) })
	}
}

func replicaName(i int) string { return fmt.Sprintf("r%d", i) }

// replicaIndex is the replica of that name, or -1.
func (p *playback) replicaIndex(name string) int {
	if i, ok := p.byName[name]; ok {
		return i
	}
	return -1
}

// decide asks the agent whose turn it is for a replica for f, and sends it
// there as the proxy would.
func (p *playback) decide(f *flight) {
	a := p.agents[p.asked%len(p.agents)]
	f.agent = a
	p.asked++
	binary.BigEndian.PutUint64(f.id[:], uint64(p.asked))
	binary.BigEndian.PutUint64(f.id[8:], p.chance.Uint64())
	c := f.call
	request, decision := &a.request, &a.decision
	var h *holding
	if p.o.Admission != nil {
		h = &holding{playback: p, flight: f}
		request, decision = &h.request, &h.decision
	}
	*request = decider.Request{
		// With another seed, sessions fall on other replicas.
		ID: f.id, Pool: a.pool, Session: trace.Hash(c.Session + p.o.Seed), HasSession: c.HasSession,
		Input: p.noisy(c.Estimate), Output: -1, Blocks: c.Visible, Stream: c.Stream, Cut: c.Truncated,
		Band: c.Band, Tenant: c.Tenant,
	}
	if h == nil {
		a.pool.Decide(request, decision)
	} else if a.pool.Submit(request, decision, h) {
		p.load.sent(-1)
		return
	}
	p.send(f, decision)
}

// holding is a request that its agent holds.
type holding struct {
	playback *playback
	flight   *flight
	request  decider.Request
	decision decider.Decision
}

// Bound implements decider.Waiter. The pool is locked: the request is sent a
// moment later.
func (h *holding) Bound() { h.playback.bound = append(h.playback.bound, h) }

// sendBound sends what is held no more, and what that sets free in turn.
func (p *playback) sendBound() {
	for len(p.bound) > 0 {
		h := p.bound[0]
		p.bound = p.bound[1:]
		p.load.ended(-1)
		p.send(h.flight, &h.decision)
	}
}

// noisy is an estimate of n tokens.
func (p *playback) noisy(n int) int {
	if p.o.TokenNoise == 0 {
		return n
	}
	return max(1, int(float64(n)*(1+p.o.TokenNoise*(2*p.chance.Float64()-1))))
}

// send takes f to the server of d, or where that is dead to its fallbacks, or
// to whichever replica lives.
func (p *playback) send(f *flight, d *decider.Decision) {
	if d.Status != 0 {
		p.load.sent(f.replica)
		p.end(f, flightShed)
		return
	}
	chosen := p.replicaIndex(d.Server)
	k := chosen
	for _, name := range d.Fallbacks {
		if k < 0 || p.dead[k] {
			k = p.replicaIndex(name)
		}
	}
	for range p.fleet {
		if k >= 0 && !p.dead[k] {
			break
		}
		p.turn++
		k = p.turn % len(p.fleet)
	}
	if p.dead[k] {
		p.load.sent(f.replica)
		p.end(f, flightFailed)
		return
	}
	f.replica, f.moved = k, k != chosen
	if !p.submit(k, f) {
		return
	}
	p.tell(newsConnected, f)
}

// submit gives f to engine k; it reports false where that refuses it.
func (p *playback) submit(k int, f *flight) bool {
	p.load.sent(k)
	if err := p.fleet[k].Submit(p.now, &f.job); err != nil {
		p.end(f, flightRefused)
		return false
	}
	p.schedule(k)
	return true
}

// tell brings news of f to its agent, as late as that hears of it.
func (p *playback) tell(kind newsKind, f *flight) {
	if f.agent == nil {
		return
	}
	if kind == newsFirstToken {
		if p.o.Poll > 0 {
			p.firsts[f.replica]++
		}
		if p.o.Poll > 0 || p.o.NoFirstToken || !f.call.Stream {
			return
		}
	}
	n := news{at: p.now + p.o.FeedbackDelay, kind: kind, flight: f}
	if p.o.FeedbackDelay == 0 {
		p.hear(n)
		return
	}
	p.news.push(n)
}

// hear acts on news that is due now.
func (p *playback) hear(n news) {
	switch f := n.flight; n.kind {
	case newsConnected:
		f.agent.pool.Connected(f.id, p.names[f.replica])
	case newsFirstToken:
		f.agent.pool.FirstToken(f.id, p.names[f.replica])
	case newsFinished:
		f.agent.pool.Finished(p.outcome(f))
	case newsPoll:
		p.poll(n.n)
		p.news.push(news{at: n.at + p.o.Poll, kind: newsPoll, n: n.n})
	case newsScrape:
		p.scrape(n.n)
		p.news.push(news{at: n.at + p.o.Metrics, kind: newsScrape, n: n.n})
	case newsRelease:
		for _, a := range p.agents {
			a.decider.Dispatch()
		}
		p.news.push(news{at: n.at + releaseEvery, kind: newsRelease})
	case newsSweep:
		for _, a := range p.agents {
			a.decider.Sweep()
		}
		p.news.push(news{at: n.at + time.Second, kind: newsSweep})
	case newsDeath:
		if p.dead[n.n] {
			return
		}
		p.dead[n.n] = true
		p.schedule(n.n)
		p.fleet[n.n].Jobs(func(j *sim.Job, _ bool) { p.end(j.Owner.(*flight), flightFailed) })
	case newsHealth:
		for _, a := range p.agents {
			a.pool.Discovered([]decider.ReplicaState{{Name: p.replicas[n.n], Weight: 1}})
		}
	}
}

// outcome is what the proxy says of the end of f.
func (p *playback) outcome(f *flight) decider.Outcome {
	o := decider.Outcome{ID: f.id, Redispatched: f.moved}
	if f.replica >= 0 {
		o.Server = p.names[f.replica]
	}
	switch {
	case f.began && f.call.Stream:
		o.TTFT = f.first - f.at
	case f.began:
		o.TTFT = f.done - f.at
	}
	if f.state == flightFailed {
		o.End = decider.Died
	}
	return o
}

// poll looks at engine k's count of first tokens.
func (p *playback) poll(k int) {
	if p.dead[k] {
		return
	}
	p.agents[0].pool.Engine(p.replicas[k]).FirstTokens(p.firsts[k])
	p.firsts[k] = 0
}

// throughput is the rate at which an engine ended requests in the last second
// or more.
type throughput struct {
	at       time.Duration // when finished was counted
	finished uint64
	rate     float64 // requests/s
}

// scrape tells the agents what engine k says of its queue and cache.
func (p *playback) scrape(k int) {
	if p.dead[k] {
		return
	}
	s, t := p.fleet[k].Stats(), &p.throughput[k]
	if passed := p.now - t.at; passed >= time.Second {
		t.rate = float64(s.Finished-t.finished) / passed.Seconds()
		t.at, t.finished = p.now, s.Finished
	}
	signals := decider.Signals{
		Waiting: s.Waiting, Running: s.Running, KVUsage: s.KVUsage(), Throughput: t.rate,
	}
	for _, a := range p.agents {
		a.pool.Engine(p.replicas[k]).Signals(signals)
	}
}
