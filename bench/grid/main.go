// Command grid compares our policies with their rivals in many cells: workloads
// and a trace, numbers of replicas, loads and cache sizes.
//
//	go run ./bench/grid -trace conversation.jsonl -csv grid.csv > grid.md
//
// Flags select a subset, or -cells names a file with a list of cells; cells.txt has
// those that docs/decisions compare. Figures are means over the seeds, from each of which the
// workloads are generated. Replays run on all processors, the first seed of every cell
// before the second.
//
// The file -csv has a row for each cell, seed and policy, and gets each row as it is
// measured. Rows that it has are not measured again, so the same command continues
// a run that was stopped. -from names further such files, which are only read: the
// rivals can be measured once for several versions of our policies.
//
//	go run ./bench/grid -trace T -ours "" -csv rivals.csv
//	go run ./bench/grid -trace T -from rivals.csv -csv ours.csv > grid.md
//
// With -replay=false nothing is measured; the page is of the cells and seeds for
// which the files have all policies. Rows do not record the trace, the profile or
// the version of the policies: use files of the same ones only.
package main

import (
	"flag"
	"log"
	"os"
	"strings"

	"pointsman/sim/workload"
)

// rivals are the policies to beat, as their projects ship them.
const rivals = "round_robin,least_requests,power_of_two,lmetric,kv_cost,{name: kv_cost, preset: agentic},predicted_latency,prefix_cache,cache_aware,weighted"

// conversation is the name of the workload that -trace adds.
const conversation = "conversation"

// options are the flags.
type options struct {
	workloads, replicas, loads, caches string
	ours, rivals, profile              string
	seeds                              string
	list, trace, csv, from             string
	queue                              string
	replay                             bool
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.workloads, "workloads", strings.Join(workload.Names(), ","), "workloads, separated by commas")
	flag.StringVar(&o.replicas, "replicas", "4,8,16,32", "numbers of replicas")
	flag.StringVar(&o.loads, "loads", "0.7,0.85,0.95", "loads in multiples of round robin's saturation")
	flag.StringVar(&o.caches, "caches", "200000,500000,1500000", "cache sizes in tokens")
	flag.StringVar(&o.ours, "ours", "least_work,least_work_late", "policies to judge; if empty, the rivals are measured and there is no page")
	flag.StringVar(&o.rivals, "rivals", rivals, "policies to beat")
	flag.StringVar(&o.queue, "router-queue", "", "each kv_cost also with Dynamo's router queue: 16, or 16,wspt")
	flag.StringVar(&o.profile, "profile", "70b", "speed of a replica")
	flag.StringVar(&o.seeds, "seeds", "1-3", "seeds: the first and the last, or one")
	flag.StringVar(&o.list, "cells", "", "file that lists the cells, in place of the flags workloads to caches, and seeds")
	flag.StringVar(&o.trace, "trace", "", "conversation trace, a further workload")
	flag.StringVar(&o.csv, "csv", "", "file for all figures; the ones in it are not measured again")
	flag.StringVar(&o.from, "from", "", "files of earlier runs whose figures are used, separated by commas")
	flag.BoolVar(&o.replay, "replay", true, "measure what the files lack; if false, the page is without it")
	flag.Parse()
	r, err := o.run()
	if err == nil && len(r.ours) > 0 {
		err = r.writeMarkdown(os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// setup is what a cell simulates.
type setup struct {
	workload        string
	replicas, cache int
	load            float64
}

// cell is one setup and its results.
type cell struct {
	setup
	seeds        seeds
	ours, rivals []figures
	bySeed       [][]figures // of the rivals, the first seed's first
}

// figures are the figures of one policy, means over the seeds.
type figures struct {
	policy                                   string
	ttft90, ttft99, tpot90, e2e90, good, hit float64
}

// add adds the n-th part of other.
func (f *figures) add(other *figures, n float64) {
	f.ttft90, f.ttft99 = f.ttft90+other.ttft90/n, f.ttft99+other.ttft99/n
	f.tpot90, f.e2e90 = f.tpot90+other.tpot90/n, f.e2e90+other.e2e90/n
	f.good, f.hit = f.good+other.good/n, f.hit+other.hit/n
}
