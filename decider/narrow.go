package decider

// DefaultLoRASlots is how many adapters an engine is taken to keep loaded.
const DefaultLoRASlots = 8

// Filters says which filters narrow the choice before the pool's policy makes
// it. They combine with any policy and with each other, in this order.
type Filters struct {
	Sticky   bool // to the replica that the session was given last
	LoRA     bool // to the replicas that have the adapter, else those with the fewest
	Locality bool // to the agent's own node, else its own zone

	// Spill is how many requests more than the least loaded candidate the least
	// loaded one that a filter leaves may hold before the filter gives way.
	Spill int
	// LoRASlots is how many adapters an engine keeps loaded; 0 = DefaultLoRASlots.
	LoRASlots int
	// Node and Zone are where the agent runs, in the words of ReplicaConfig.
	Node, Zone string
}

// filter narrows the choice. Its keep appends those of v.Candidates that it
// would have to dst, in their order; none or all of them is no preference.
type filter struct {
	kind int
	keep func(p *Pool, r *Request, v *View, dst []int) []int
}

// The kinds of filters.
const (
	sticky = iota
	lora
	locality
	filterKinds
)

// filterNames are their keys in the configuration.
var filterNames = [filterKinds]string{"sticky_sessions", "lora_affinity", "locality"}

// stage is what was left after a filter that narrowed the choice.
type stage struct {
	filter filter
	left   []int
}

// setFilters prepares what p.config.Filters asks for. The caller holds the lock.
func (p *Pool) setFilters() {
	f := p.config.Filters
	p.filters = p.filters[:0]
	for _, x := range []struct {
		on bool
		filter
	}{
		{f.Sticky, filter{sticky, (*Pool).lastOfSession}},
		{f.LoRA, filter{lora, (*Pool).withAdapter}},
		{f.Locality, filter{locality, (*Pool).nearest}},
	} {
		if x.on {
			p.filters = append(p.filters, x.filter)
		}
	}
	p.sessions.enable(f.Sticky)
	p.whys = p.whys[:0]
	for set := range 1 << len(p.filters) {
		why := p.config.PolicyName
		for k, f := range p.filters {
			if set>>k&1 == 1 {
				why += "+" + filterNames[f.kind]
			}
		}
		p.whys = append(p.whys, why)
	}
}

// narrow passes v.Candidates, at least one, through the filters. It never
// leaves none.
func (p *Pool) narrow(r *Request) {
	v := &p.view
	p.stages, p.kept, p.why = p.stages[:0], p.kept[:0], 0
	for k, f := range p.filters {
		if len(v.Candidates) == 1 {
			return
		}
		start := len(p.kept)
		p.kept = f.keep(p, r, v, p.kept)
		left := p.kept[start:len(p.kept):len(p.kept)]
		if len(left) == 0 || len(left) == len(v.Candidates) {
			continue
		}
		v.Candidates = left
		p.stages = append(p.stages, stage{f, left})
		p.why |= 1 << k
	}
}

// countNarrowed counts the filters that narrowed the choice just made.
func (p *Pool) countNarrowed() {
	for _, s := range p.stages {
		p.stats.Narrowed[s.filter.kind]++
	}
}

// narrowedBy names the filter that took the candidate i away, or "".
func (p *Pool) narrowedBy(i int) string {
	if !has(p.wide, i) {
		return ""
	}
	for _, s := range p.stages {
		if !has(s.left, i) {
			return filterNames[s.filter.kind]
		}
	}
	return ""
}

// spills reports whether kept are all so loaded that the filter which kept
// them must give way.
func (p *Pool) spills(v *View, kept []int) bool {
	return v.leastInFlight(kept) > v.leastInFlight(v.Candidates)+p.config.Filters.Spill
}

// leastInFlight is the fewest requests on any of the replicas, at least one.
func (v *View) leastInFlight(replicas []int) int {
	least := v.Replicas[replicas[0]].inFlight
	for _, i := range replicas[1:] {
		least = min(least, v.Replicas[i].inFlight)
	}
	return least
}

// pick appends the candidates that ok accepts, unless they are too loaded.
func (p *Pool) pick(v *View, dst []int, ok func(*Replica) bool) []int {
	start := len(dst)
	for _, i := range v.Candidates {
		if ok(v.Replicas[i]) {
			dst = append(dst, i)
		}
	}
	if len(dst) > start && p.spills(v, dst[start:]) {
		return dst[:start]
	}
	return dst
}
