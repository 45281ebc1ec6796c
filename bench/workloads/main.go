// Command workloads writes a synthetic trace for `pointsman simulate`: a
// workload of another kind than the recorded traces, so that a policy is not
// judged by one of them alone.
//
//	go run ./bench/workloads chats|agents|documents [seed] > trace.jsonl
//
// The seed is 1 unless given; the same one makes the same trace.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	requests = 8000
	block    = 512 // tokens behind each of hash_ids
)

// line is a request in the form of the Mooncake traces.
type line struct {
	Timestamp int64 `json:"timestamp"` // ms
	Input     int   `json:"input_length"`
	Output    int   `json:"output_length"`
	Blocks    []int `json:"hash_ids"`
}

// kind is a kind of workload: talks that begin with a shared prompt and grow
// turn by turn.
type kind struct {
	prompts             int // shared system prompts
	promptMin, promptUp int // their length in blocks
	turnsMin, turnsUp   int
	documents           int           // each talk is about one of so many, a few of them most of the time
	growth              int           // most blocks a turn adds
	pause               time.Duration // mean, between turns
}

var kinds = map[string]kind{
	"chats":     {prompts: 20, promptMin: 1, promptUp: 8, turnsMin: 1, turnsUp: 10, growth: 4, pause: 30 * time.Second},
	"agents":    {prompts: 6, promptMin: 12, promptUp: 24, turnsMin: 4, turnsUp: 25, growth: 4, pause: 8 * time.Second},
	"documents": {prompts: 3, promptMin: 1, promptUp: 8, turnsMin: 1, turnsUp: 1, documents: 400, growth: 1, pause: time.Second},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || len(os.Args) > 3 || kinds[os.Args[1]].prompts == 0 {
		log.Fatal("want one of: chats, agents, documents; and perhaps a seed")
	}
	seed := uint64(1)
	if len(os.Args) == 3 {
		var err error
		if seed, err = strconv.ParseUint(os.Args[2], 10, 64); err != nil {
			log.Fatalf("seed: %q, want a whole number from 0 on", os.Args[2])
		}
	}
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	for _, l := range newMaker(kinds[os.Args[1]], seed).trace() {
		if err := enc.Encode(l); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

type maker struct {
	kind
	chance    *rand.Rand
	next      int // block id
	system    [][]int
	documents [][]int
}

func newMaker(k kind, seed uint64) *maker {
	m := &maker{kind: k, chance: rand.New(rand.NewPCG(seed, 2))}
	for range k.prompts {
		m.system = append(m.system, m.blocks(m.between(k.promptMin, k.promptUp)))
	}
	for range k.documents {
		m.documents = append(m.documents, m.blocks(m.between(4, 20)))
	}
	return m
}

func (m *maker) between(low, up int) int { return low + m.chance.IntN(up-low+1) }

// blocks are n blocks that nothing else has.
func (m *maker) blocks(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = m.next
		m.next++
	}
	return list
}

// trace makes the requests, in the order of their time.
func (m *maker) trace() []line {
	var lines []line
	start := 0.0 // seconds
	for len(lines) < requests {
		start += m.chance.ExpFloat64()
		lines = append(lines, m.talk(start)...)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return lines[:requests]
}

// talk makes the requests of one conversation.
func (m *maker) talk(at float64) []line {
	var lines []line
	prompt := slices.Clone(m.system[m.chance.IntN(len(m.system))])
	if n := len(m.documents); n > 0 {
		// Pareto with exponent 0.8: the first document is asked for most.
		rank := math.Pow(1-m.chance.Float64(), -1/0.8) - 1
		prompt = append(prompt, m.documents[min(int(rank), n-1)]...)
	}
	for range m.between(m.turnsMin, m.turnsUp) {
		prompt = append(prompt, m.blocks(m.between(1, m.growth))...)
		output := m.between(50, 600)
		lines = append(lines, line{
			Timestamp: int64(at * 1000),
			Input:     len(prompt)*block + m.between(1, block-1),
			Output:    output,
			Blocks:    append(slices.Clone(prompt), m.blocks(1)...),
		})
		prompt = append(prompt, m.blocks(max(1, output/block))...)
		at += m.chance.ExpFloat64() * m.pause.Seconds()
	}
	return lines
}
