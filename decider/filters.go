package decider

// filterChain is a pool's filters and what they did to the last decision. It
// lives under the pool's lock.
type filterChain struct {
	filters []Filter
	narrows []*uint64          // by filter, the decisions that it narrowed
	total   map[string]*uint64 // the same by name, of filters no longer there too
	whys    []string           // Decision.Why by the set of filters that narrowed it

	before []int         // the candidates before the filters
	stages []filterStage // the filters that narrowed them, in order
	kept   []int         // scratch
	set    int           // the filters of stages, as an index of whys
}

// filterStage is a filter that narrowed the candidates, and what it kept.
type filterStage struct {
	filter int
	kept   []int
}

// namedFilters bounds how many filters Decision.Why can name: there is a text for
// each combination of them.
const namedFilters = 8

// configure makes these the filters, of a pool whose policy has that name.
func (c *filterChain) configure(filters []Filter, policy string) {
	if c.total == nil {
		c.total = map[string]*uint64{}
	}
	c.filters, c.narrows = filters, c.narrows[:0]
	for _, f := range filters {
		if c.total[f.Name()] == nil {
			c.total[f.Name()] = new(uint64)
		}
		c.narrows = append(c.narrows, c.total[f.Name()])
	}
	c.whys = c.whys[:0]
	for set := range 1 << min(len(filters), namedFilters) {
		why := policy
		for k, f := range filters {
			if set>>k&1 == 1 {
				why += "+" + f.Name()
			}
		}
		c.whys = append(c.whys, why)
	}
}

// usesSessions reports whether a filter asks for sessions.
func (c *filterChain) usesSessions() bool {
	for _, f := range c.filters {
		if u, ok := f.(SessionUser); ok && u.UsesSessions() {
			return true
		}
	}
	return false
}

// begin starts a decision among the candidates.
func (c *filterChain) begin(candidates []int) {
	c.before, c.stages, c.kept, c.set = candidates, c.stages[:0], c.kept[:0], 0
}

// narrow passes v.Candidates through the filters.
func (c *filterChain) narrow(r *Request, v *View) {
	for k, f := range c.filters {
		if len(v.Candidates) == 1 {
			return
		}
		start := len(c.kept)
		c.kept = f.Keep(r, v, c.kept)
		kept := c.kept[start:len(c.kept):len(c.kept)]
		if len(kept) == 0 || len(kept) == len(v.Candidates) {
			continue
		}
		v.Candidates = kept
		c.stages = append(c.stages, filterStage{k, kept})
		if k < namedFilters {
			c.set |= 1 << k
		}
	}
}

// why names the policy and the filters that narrowed the decision.
func (c *filterChain) why() string { return c.whys[c.set] }

// count counts the filters that narrowed the decision.
func (c *filterChain) count() {
	for _, s := range c.stages {
		*c.narrows[s.filter]++
	}
}

// excludedBy names the filter that left out the candidate i, or "".
func (c *filterChain) excludedBy(i int) string {
	if !has(c.before, i) {
		return ""
	}
	for _, s := range c.stages {
		if !has(s.kept, i) {
			return c.filters[s.filter].Name()
		}
	}
	return ""
}

// Counters appends how many decisions each filter narrowed.
func (c *filterChain) Counters(dst []Counter) []Counter {
	for k, f := range c.filters {
		dst = append(dst, Counter{`narrowed_total{filter="` + f.Name() + `"}`, *c.narrows[k]})
	}
	return dst
}
