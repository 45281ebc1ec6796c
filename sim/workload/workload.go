package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pointsman/sim/trace"
)

// Workload is a kind of synthetic traffic.
type Workload struct {
	Name, About string
	blockTokens int
	generate    func(g *generator)
}

// All are the workloads, in the order in which they are offered.
var All = []Workload{
	{"chat", "conversations of short turns below a few system prompts", 128, chat},
	{"agents", "coding agents: very long prompts that grow from turn to turn, with sub-agents", 512, agents},
	{"documents", "questions about documents, a few of which are popular", 256, documents},
	{"long-among-chat", "chat, and one prompt of 100k tokens or more among fifty", 256, longAmongChat},
	{"reasoning", "short prompts, long answers", 128, reasoning},
	{"fan-out", "tasks that send up to 32 requests at once over one context", 128, fanOut},
	{"shared-prefix", "short requests below three very long system prompts", 256, sharedPrefix},
	{"bursts", "chat in which half of the requests come in short bursts", 128, bursts},
	{"diurnal", "chat whose rate rises and falls as over two days", 128, diurnal},
	{"heavy-tail", "unrelated prompts from a hundred to 180,000 tokens", 256, heavyTail},
	{"embeddings", "unrelated texts, an answer of one token, not streamed", 128, embeddings},
}

// Names returns the names of all workloads.
func Names() []string {
	list := make([]string, len(All))
	for i, w := range All {
		list[i] = w.Name
	}
	return list
}

// Check returns an error that names the valid names, unless name is one.
func Check(name string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("workload: unknown %q; want one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// New generates a workload. Equal seeds give equal traces.
func New(name string, seed uint64) (*trace.Trace, error) {
	if err := Check(name); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(All, func(w Workload) bool { return w.Name == name })
	g := newGenerator(name, seed, All[i].blockTokens)
	All[i].generate(g)
	g.requests = slices.DeleteFunc(g.requests, func(r trace.Request) bool { return r.At > g.until })
	slices.SortStableFunc(g.requests, func(a, b trace.Request) int { return cmp.Compare(a.At, b.At) })
	first := g.requests[0].At
	for i := range g.requests {
		g.requests[i].At -= first
	}
	return &trace.Trace{Requests: g.requests, BlockTokens: g.blockTokens}, nil
}
