// Command grid compares our policies with their rivals in many cells: workloads
// and a trace, numbers of replicas, loads and cache sizes.
//
//	go run ./bench/grid -trace conversation.jsonl -csv grid.csv > grid.md
//
// Flags select a subset, or -cells names a file with a list of cells; cells.txt is
// that of bench/simulator.md. Figures are means over the seeds; each seed generates
// a workload anew. The replays of a cell run on all processors.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"pointsman/sim"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
	"pointsman/sim/workload"
)

// rivals are the policies to beat, as their projects ship them.
const rivals = "round_robin,least_requests,power_of_two,lmetric,kv_cost,{name: kv_cost, preset: agentic},predicted_latency,prefix_cache,cache_aware,weighted"

// conversation is the name of the world that -trace adds.
const conversation = "conversation"

// options are the flags.
type options struct {
	worlds, replicas, loads, caches string
	ours, rivals, profile           string
	seeds                           int
	list, trace, csv                string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.worlds, "worlds", strings.Join(workload.Names(), ","), "workloads, separated by commas")
	flag.StringVar(&o.replicas, "replicas", "4,8,16,32", "numbers of replicas")
	flag.StringVar(&o.loads, "loads", "0.7,0.85,0.95", "loads in multiples of round robin's saturation")
	flag.StringVar(&o.caches, "caches", "200000,500000,1500000", "cache sizes in tokens")
	flag.StringVar(&o.ours, "ours", "least_work,least_work_late", "policies to judge")
	flag.StringVar(&o.rivals, "rivals", rivals, "policies to beat")
	flag.StringVar(&o.profile, "profile", "70b", "speed of a replica")
	flag.IntVar(&o.seeds, "seeds", 3, "seeds")
	flag.StringVar(&o.list, "cells", "", "file that lists the cells, in place of the flags worlds to caches, and seeds")
	flag.StringVar(&o.trace, "trace", "", "conversation trace, a further world")
	flag.StringVar(&o.csv, "csv", "", "file for all figures")
	flag.Parse()
	cells, err := o.run()
	if err == nil {
		err = writeMarkdown(os.Stdout, cells)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// cell is one setup and its results.
type cell struct {
	world           string
	replicas, cache int
	load            float64
	seeds           seeds
	ours, rivals    []figures
}

// figures are the figures of one policy, means over the seeds.
type figures struct {
	policy                                   string
	ttft90, ttft99, tpot90, e2e90, good, hit float64
}

// run runs all cells.
func (o *options) run() (cells []*cell, err error) {
	ours, err := replay.ParsePolicies(policies, []string{o.ours})
	if err != nil {
		return nil, err
	}
	list, err := replay.ParsePolicies(policies, []string{o.rivals})
	if err != nil {
		return nil, err
	}
	profile, err := sim.ParseProfile(o.profile)
	if err != nil {
		return nil, err
	}
	if cells, err = o.cells(); err != nil {
		return nil, err
	}
	for i, c := range cells {
		log.Printf("%d of %d: %s", i+1, len(cells), c.name())
		e := replay.Experiment{
			Options: replay.Options{Setup: replay.Setup{Replicas: c.replicas, Profile: profile, CacheTokens: c.cache}, Metrics: 50e6},
			Load:    c.load, Policies: append(ours[:len(ours):len(ours)], list...), Seeds: 1,
		}
		all, err := o.replay(c, e)
		if err != nil {
			return nil, err
		}
		c.ours, c.rivals = all[:len(ours)], all[len(ours):]
		if o.csv != "" { // after each cell: a run may be long
			if err := writeCSV(o.csv, cells[:i+1]); err != nil {
				return nil, err
			}
		}
	}
	return cells, nil
}

// replay runs the policies of e in one cell with each seed.
func (o *options) replay(c *cell, e replay.Experiment) ([]figures, error) {
	all := make([]figures, len(e.Policies))
	for seed := c.seeds.from; seed <= c.seeds.to; seed++ {
		e.Seed = uint64(seed)
		t, err := o.requests(c.world, e.Seed)
		if err != nil {
			return nil, err
		}
		results, err := e.Run(t, nil)
		if err != nil {
			return nil, err
		}
		n := float64(c.seeds.to - c.seeds.from + 1)
		for i, s := range results.Summaries() {
			f := &all[i]
			f.policy = s.Policy
			f.ttft90, f.ttft99 = f.ttft90+s.TTFT.P90/n, f.ttft99+s.TTFT.P99/n
			f.tpot90, f.e2e90 = f.tpot90+s.TPOT.P90/n, f.e2e90+s.E2E.P90/n
			f.good, f.hit = f.good+s.Goodput/n, f.hit+s.HitRate/n
		}
	}
	return all, nil
}

// requests are the requests of a world.
func (o *options) requests(world string, seed uint64) (*trace.Trace, error) {
	if world == conversation {
		return trace.ReadFile(o.trace, trace.Options{})
	}
	return workload.New(world, seed)
}

// writeCSV writes the figures of every policy in every cell.
func writeCSV(path string, cells []*cell) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	rows := [][]string{{"world", "replicas", "cache", "load", "seeds", "policy", "ttft_p90", "ttft_p99", "tpot_p90", "e2e_p90", "goodput", "hit_rate"}}
	for _, c := range cells {
		for _, p := range append(c.ours[:len(c.ours):len(c.ours)], c.rivals...) {
			rows = append(rows, []string{
				c.world, strconv.Itoa(c.replicas), strconv.Itoa(c.cache), fmt.Sprint(c.load), c.seeds.String(), p.policy,
				number(p.ttft90), number(p.ttft99), number(p.tpot90), number(p.e2e90), number(p.good), number(p.hit),
			})
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return f.Close()
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', 5, 64) }
