package main

import (
	"log"
	"runtime"
	"slices"
	"strings"
	"sync"

	"pointsman/sim"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
	"pointsman/sim/workload"
)

// results are the cells that were measured.
type results struct {
	ours    []string // policies
	cells   []*cell
	missing int // cells for which the files lack a policy
}

// run measures what the files lack, and returns the results.
func (o *options) run() (*results, error) {
	ours, err := policiesOf(o.ours)
	if err != nil {
		return nil, err
	}
	list, err := policiesOf(o.rivals)
	if err != nil {
		return nil, err
	}
	queue, err := replay.ParseRouterQueue(o.queue)
	if err == nil {
		list, err = replay.WithRouterQueue(list, queue)
	}
	if err != nil {
		return nil, err
	}
	profile, err := sim.ParseProfile(o.profile)
	if err != nil {
		return nil, err
	}
	cells, err := o.cells()
	if err != nil {
		return nil, err
	}
	known, err := o.open(cells)
	if err != nil {
		return nil, err
	}
	defer known.close()
	if o.replay {
		m := measurement{o: o, profile: profile, known: known, policies: append(ours[:len(ours):len(ours)], list...)}
		if err := m.run(cells); err != nil {
			return nil, err
		}
	}
	r := &results{}
	for i := range ours {
		r.ours = append(r.ours, ours[i].Name)
	}
	for _, c := range cells {
		if c.fill(known, ours, list) {
			r.cells = append(r.cells, c)
		} else {
			r.missing++
		}
	}
	return r, nil
}

// policiesOf reads a list of policies, which may be empty.
func policiesOf(names string) ([]replay.Policy, error) {
	if names == "" {
		return nil, nil
	}
	return replay.ParsePolicies(policies, []string{names})
}

// fill sets the figures of c, means over the first seeds for which all policies
// are known. It reports whether there is one.
func (c *cell) fill(known *store, ours, rivals []replay.Policy) bool {
	all := append(ours[:len(ours):len(ours)], rivals...)
	has := func(seed int) bool {
		return !slices.ContainsFunc(all, func(p replay.Policy) bool { return known.get(row{c.setup, seed, p.Name}) == nil })
	}
	from := c.seeds.from
	for from <= c.seeds.to && !has(from) {
		from++
	}
	if from > c.seeds.to {
		return false
	}
	to := from
	for to < c.seeds.to && has(to+1) {
		to++
	}
	c.seeds = seeds{from, to}
	rows := func(policies []replay.Policy) (bySeed [][]figures) {
		for seed := from; seed <= to; seed++ {
			list := make([]figures, len(policies))
			for i, p := range policies {
				list[i] = *known.get(row{c.setup, seed, p.Name})
			}
			bySeed = append(bySeed, list)
		}
		return bySeed
	}
	c.bySeed = rows(rivals)
	c.ours, c.rivals = means(rows(ours)), means(c.bySeed)
	return true
}

// means returns the means over the seeds, which have the same policies in the same order.
func means(bySeed [][]figures) []figures {
	sums := make([]figures, len(bySeed[0]))
	for _, list := range bySeed {
		for i := range list {
			sums[i].policy = list[i].policy
			sums[i].add(&list[i], float64(len(bySeed)))
		}
	}
	return sums
}

// measurement replays what the files lack.
type measurement struct {
	o        *options
	profile  sim.Profile
	policies []replay.Policy
	known    *store

	running sync.WaitGroup
	slots   chan struct{} // one for each replay at a time
	failed  chan error    // holds the first error
}

// run replays the policies in the cells, one seed after the other, where they are
// not known.
func (m *measurement) run(cells []*cell) error {
	m.slots, m.failed = make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan error, 1)
	defer m.running.Wait()
	last := 0
	for _, c := range cells {
		last = max(last, c.seeds.to)
	}
	conversations := sync.OnceValues(func() (*trace.Trace, error) { return trace.ReadFile(m.o.trace, trace.Options{}) })
	for seed := 0; seed <= last; seed++ {
		var name string // the trace of a workload and seed serves all its cells
		var requests func() (*trace.Trace, error)
		for i, c := range cells {
			if !c.seeds.contains(seed) {
				continue
			}
			switch {
			case c.workload == conversation:
				name, requests = conversation, conversations
			case c.workload != name:
				name = c.workload
				requests = sync.OnceValues(func() (*trace.Trace, error) { return workload.New(c.workload, uint64(seed)) })
			}
			if err := m.cell(c, seed, i, len(cells), requests); err != nil {
				return err
			}
		}
	}
	m.running.Wait()
	select {
	case err := <-m.failed:
		return err
	default:
		return nil
	}
}

// cell starts the replays of a cell with one seed. It waits while all processors
// have some, and returns the error of any that failed.
func (m *measurement) cell(c *cell, seed, i, of int, requests func() (*trace.Trace, error)) error {
	missing := slices.DeleteFunc(slices.Clone(m.policies), func(p replay.Policy) bool { return m.known.get(row{c.setup, seed, p.Name}) != nil })
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, len(missing))
	for k := range missing {
		names[k] = short(missing[k].Name)
	}
	single := cell{setup: c.setup, seeds: seeds{seed, seed}}
	log.Printf("%d of %d: %s: %s", i+1, of, single.name(), strings.Join(names, ", "))
	set := replay.Setup{Replicas: c.replicas, Profile: m.profile, CacheTokens: c.cache}
	rate := sync.OnceValues(func() (float64, error) {
		t, err := requests()
		if err != nil {
			return 0, err
		}
		saturation, err := replay.Saturation(t, set)
		return c.load * saturation, err
	})
	for _, p := range missing {
		select {
		case err := <-m.failed:
			return err
		case m.slots <- struct{}{}:
		}
		m.running.Go(func() {
			defer func() { <-m.slots }()
			if err := m.measure(row{c.setup, seed, p.Name}, p, set, rate, requests); err != nil {
				select {
				case m.failed <- err:
				default:
				}
			}
		})
	}
	return nil
}

// measure replays one policy and stores its figures.
func (m *measurement) measure(r row, p replay.Policy, set replay.Setup, rate func() (float64, error), requests func() (*trace.Trace, error)) error {
	t, err := requests()
	if err != nil {
		return err
	}
	o := replay.Options{
		Setup: set, Metrics: 50e6, Policy: p.New, PolicyName: p.Name, Admission: p.Admission(false), RouterQueue: p.Queue, Seed: uint64(r.seed),
	}
	if o.Rate, err = rate(); err != nil {
		return err
	}
	result, err := replay.Run(t, o)
	if err != nil {
		return err
	}
	s := replay.Summarize([]*replay.Result{result})
	return m.known.add(r, figures{
		policy: p.Name, ttft90: s.TTFT.P90, ttft99: s.TTFT.P99, tpot90: s.TPOT.P90, e2e90: s.E2E.P90, good: s.Goodput, hit: s.HitRate,
	})
}
