package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// syntheticRequests is the number of requests in a synthetic trace.
const syntheticRequests = 8000

// syntheticLine is a request in the form of the Mooncake traces.
type syntheticLine struct {
	Timestamp int64 `json:"timestamp"` // ms
	Input     int   `json:"input_length"`
	Output    int   `json:"output_length"`
	Blocks    []int `json:"hash_ids"`
}

// workload describes a kind of synthetic workload: conversations that begin with
// a shared prompt and grow turn by turn.
type workload struct {
	prompts             int // shared system prompts
	promptMin, promptUp int // their length in blocks
	turnsMin, turnsUp   int
	documents           int           // each conversation is about one of them; a few are used most
	growth              int           // most blocks that a turn adds
	pause               time.Duration // mean time between turns
}

var workloads = map[string]workload{
	"chats":     {prompts: 20, promptMin: 1, promptUp: 8, turnsMin: 1, turnsUp: 10, growth: 4, pause: 30 * time.Second},
	"agents":    {prompts: 6, promptMin: 12, promptUp: 24, turnsMin: 4, turnsUp: 25, growth: 4, pause: 8 * time.Second},
	"documents": {prompts: 3, promptMin: 1, promptUp: 8, turnsMin: 1, turnsUp: 1, documents: 400, growth: 1, pause: time.Second},
}

// WriteSynthetic writes a synthetic trace of 8,000 requests in the form of the
// Mooncake traces. name is chats, agents or documents. Equal seeds give equal
// traces.
func WriteSynthetic(w io.Writer, name string, seed uint64) error {
	k, ok := workloads[name]
	if !ok {
		var names []string
		for n := range workloads {
			names = append(names, n)
		}
		slices.Sort(names)
		return fmt.Errorf("workload: unknown %q; want one of %s", name, strings.Join(names, ", "))
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, l := range newGenerator(k, seed).requests() {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return out.Flush()
}

// generator makes one synthetic workload.
type generator struct {
	workload
	random    *rand.Rand
	next      int // block id
	system    [][]int
	documents [][]int
}

func newGenerator(k workload, seed uint64) *generator {
	g := &generator{workload: k, random: rand.New(rand.NewPCG(seed, 2))}
	for range k.prompts {
		g.system = append(g.system, g.blocks(g.between(k.promptMin, k.promptUp)))
	}
	for range k.documents {
		g.documents = append(g.documents, g.blocks(g.between(4, 20)))
	}
	return g
}

// between returns a random number from low to up.
func (g *generator) between(low, up int) int { return low + g.random.IntN(up-low+1) }

// blocks returns n new blocks.
func (g *generator) blocks(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = g.next
		g.next++
	}
	return list
}

// requests returns the requests in the order of their time.
func (g *generator) requests() []syntheticLine {
	var lines []syntheticLine
	start := 0.0 // seconds
	for len(lines) < syntheticRequests {
		start += g.random.ExpFloat64()
		lines = append(lines, g.conversation(start)...)
	}
	slices.SortStableFunc(lines, func(a, b syntheticLine) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return lines[:syntheticRequests]
}

// conversation returns the requests of one conversation.
func (g *generator) conversation(at float64) []syntheticLine {
	var lines []syntheticLine
	prompt := slices.Clone(g.system[g.random.IntN(len(g.system))])
	if n := len(g.documents); n > 0 {
		// A Pareto distribution with exponent 0.8: the first document is used most.
		rank := math.Pow(1-g.random.Float64(), -1/0.8) - 1
		prompt = append(prompt, g.documents[min(int(rank), n-1)]...)
	}
	for range g.between(g.turnsMin, g.turnsUp) {
		prompt = append(prompt, g.blocks(g.between(1, g.growth))...)
		output := g.between(50, 600)
		lines = append(lines, syntheticLine{
			Timestamp: int64(at * 1000),
			Input:     len(prompt)*mooncakeBlock + g.between(1, mooncakeBlock-1),
			Output:    output,
			Blocks:    append(slices.Clone(prompt), g.blocks(1)...),
		})
		prompt = append(prompt, g.blocks(max(1, output/mooncakeBlock))...)
		at += g.random.ExpFloat64() * g.pause.Seconds()
	}
	return lines
}
