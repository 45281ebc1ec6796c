package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Limits of what the page names.
const (
	lostRatio   = 1.10 // of the TTFT p90 to the best rival's: a lost cell
	lostGood    = 0.01 // goodput below the best rival's
	behindPlain = 1.02 // of the TTFT p90 to that of a policy in plain
	behindOurs  = 1.05 // of the TTFT p90 to that of our first policy
)

// plain are the policies that none of ours may be behind, since every proxy has them.
var plain = []string{"round_robin", "least_requests"}

// best returns the smallest figure of the rivals, and that rival.
func (c *cell) best(of func(*figures) float64) (x float64, policy string) {
	x = math.Inf(1)
	for i := range c.rivals {
		if y := of(&c.rivals[i]); y < x {
			x, policy = y, c.rivals[i].policy
		}
	}
	return x, short(policy)
}

func ttft90(f *figures) float64 { return f.ttft90 }
func ttft99(f *figures) float64 { return f.ttft99 }
func e2e90(f *figures) float64  { return f.e2e90 }
func bad(f *figures) float64    { return 1 - f.good }

// ratio returns x to the best, 1 if both are 0.
func ratio(x, best float64) float64 {
	if best == 0 && x == 0 {
		return 1
	}
	return x / best
}

// against returns the ratio of a figure of our policy i to the best rival's.
func (c *cell) against(i int, of func(*figures) float64) float64 {
	best, _ := c.best(of)
	return ratio(of(&c.ours[i]), best)
}

// behind returns how far our policy i is behind the better of the plain ones, 0 if
// they are not among the rivals.
func (c *cell) behind(i int) (r float64) {
	for k := range c.rivals {
		if slices.Contains(plain, c.rivals[k].policy) {
			r = max(r, ratio(c.ours[i].ttft90, c.rivals[k].ttft90))
		}
	}
	return r
}

// summary is what the page says about one of our policies in some cells.
type summary struct {
	cells, kept, lost, behind int
	p90, p99, e2e, worst      float64 // the first three are sums of logarithms
}

// summarize summarizes our policy i.
func summarize(cells []*cell, i int) (s summary) {
	for _, c := range cells {
		r := c.against(i, ttft90)
		s.cells++
		s.p90, s.p99, s.e2e = s.p90+math.Log(r), s.p99+math.Log(c.against(i, ttft99)), s.e2e+math.Log(c.against(i, e2e90))
		s.worst = max(s.worst, r)
		if least, _ := c.best(bad); bad(&c.ours[i]) <= least+lostGood {
			s.kept++
		}
		if r > lostRatio {
			s.lost++
		}
		if c.behind(i) > behindPlain {
			s.behind++
		}
	}
	return s
}

// againstContenders returns the TTFT p99 of our policy i as a ratio to the lowest of the cell's
// contenders, the rivals that do not lose it by their p90; the geometric mean of the cells. A
// rival may have the lowest p99 of all because it lets most requests wait.
func againstContenders(cells []*cell, i int) float64 {
	sum := 0.0
	for _, c := range cells {
		best, _ := c.best(ttft90)
		lowest := math.Inf(1)
		for k := range c.rivals {
			if ratio(c.rivals[k].ttft90, best) <= lostRatio {
				lowest = min(lowest, c.rivals[k].ttft99)
			}
		}
		sum += math.Log(ratio(c.ours[i].ttft99, lowest))
	}
	return math.Exp(sum / float64(len(cells)))
}

func (s summary) write(b *strings.Builder, name string) {
	n := float64(s.cells)
	fmt.Fprintf(b, "| %s | %d | %.3f | %.2f | %.3f | %.3f | %.0f%% | %d | %d |\n", name, s.cells, math.Exp(s.p90/n), s.worst,
		math.Exp(s.p99/n), math.Exp(s.e2e/n), 100*float64(s.kept)/n, s.lost, s.behind)
}

// writeMarkdown writes a summary of our policies by workload, the cells that they
// lose, and each cell.
func (r *results) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	if r.missing > 0 {
		fmt.Fprintf(&b, "%d of %d cells are measured.\n\n", len(r.cells), len(r.cells)+r.missing)
	}
	if len(r.cells) > 0 {
		workloads := byWorkload(r.cells)
		r.summaries(&b, workloads)
		r.lost(&b)
		r.chance(&b)
		r.afterFirst(&b)
		b.WriteString("\nEach cell: the rival with the lowest TTFT p90, that in seconds, and the ratios of ours to it. Lost cells are bold.\n")
		for _, cells := range workloads {
			r.workload(&b, cells)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// byWorkload splits cells by workload, in the order in which workloads first occur.
func byWorkload(cells []*cell) (workloads [][]*cell) {
	for _, c := range cells {
		i := slices.IndexFunc(workloads, func(of []*cell) bool { return of[0].workload == c.workload })
		if i < 0 {
			i, workloads = len(workloads), append(workloads, nil)
		}
		workloads[i] = append(workloads[i], c)
	}
	return workloads
}

// summaries writes a table for each of our policies.
func (r *results) summaries(b *strings.Builder, workloads [][]*cell) {
	fmt.Fprintf(b, "%s, %s. Each figure is a ratio to that of the cell's best rival in it, below 1 where ours is better; means are geometric. "+
		"Lost are cells with a TTFT p90 above %.2f; behind plain are those above %.2f of %s.\n",
		count(len(r.cells)), seedsOf(r.cells), lostRatio, behindPlain, strings.Join(plain, " or "))
	for i, name := range r.ours {
		fmt.Fprintf(b, "\n| %s | cells | TTFT p90 | worst | TTFT p99 | end to end p90 | goodput within 1 point | lost | behind plain |\n|---|---|---|---|---|---|---|---|---|\n", short(name))
		for _, cells := range workloads {
			summarize(cells, i).write(b, cells[0].workload)
		}
		if len(workloads) > 1 {
			summarize(r.cells, i).write(b, "**all**")
		}
		fmt.Fprintf(b, "\nOf the lowest TTFT p99 of the rivals that do not lose the cell themselves, %s has %.3f.\n", short(name), againstContenders(r.cells, i))
	}
}

// lost writes a table of the lost cells of each policy, the worst first.
func (r *results) lost(b *strings.Builder) {
	var rows strings.Builder
	for i, name := range r.ours {
		cells := slices.DeleteFunc(slices.Clone(r.cells), func(c *cell) bool { return c.against(i, ttft90) <= lostRatio })
		slices.SortStableFunc(cells, func(x, y *cell) int { return cmp.Compare(y.against(i, ttft90), x.against(i, ttft90)) })
		for _, c := range cells {
			best, rival := c.best(ttft90)
			fmt.Fprintf(&rows, "| %s | %s | %.3g s | %s | %.3g s | %.2f |\n", short(name), c.name(), c.ours[i].ttft90, rival, best, c.against(i, ttft90))
		}
	}
	if rows.Len() == 0 {
		b.WriteString("\nNo cell is lost.\n")
		return
	}
	b.WriteString("\nLost cells:\n\n| policy | cell | TTFT p90 | best rival | its TTFT p90 | ratio |\n|---|---|---|---|---|---|\n" + rows.String())
}

// afterFirst names the cells in which a policy of ours is behind the first of them.
func (r *results) afterFirst(b *strings.Builder) {
	for i := 1; i < len(r.ours); i++ {
		var names []string
		for _, c := range r.cells {
			if x := ratio(c.ours[i].ttft90, c.ours[0].ttft90); x > behindOurs {
				names = append(names, fmt.Sprintf("%s (%.2f)", c.name(), x))
			}
		}
		fmt.Fprintf(b, "\n%s has more than %.2f of the TTFT p90 of %s in %s", short(r.ours[i]), behindOurs, short(r.ours[0]), count(len(names)))
		if len(names) > 0 {
			b.WriteString(": " + strings.Join(names, "; "))
		}
		b.WriteString(".\n")
	}
}

// workload writes the cells of one workload: a row for each number of replicas and cache
// size, and columns for the loads.
func (r *results) workload(b *strings.Builder, cells []*cell) {
	type line struct {
		replicas, cache int
		seeds           seeds
	}
	var lines []line
	var loads []float64
	at := map[line]map[float64]*cell{}
	for _, c := range cells {
		l := line{c.replicas, c.cache, c.seeds}
		if at[l] == nil {
			at[l], lines = map[float64]*cell{}, append(lines, l)
		}
		if at[l][c.load] = c; !slices.Contains(loads, c.load) {
			loads = append(loads, c.load)
		}
	}
	slices.Sort(loads)
	one := cells[0].seeds
	mixed := slices.ContainsFunc(cells, func(c *cell) bool { return c.seeds != one })
	fmt.Fprintf(b, "\n| %s, %s |", cells[0].workload, seedsOf(cells))
	for _, load := range loads {
		fmt.Fprintf(b, " %g: best | s |", load)
		for _, name := range r.ours {
			fmt.Fprintf(b, " %s |", short(name))
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(loads)*(2+len(r.ours))) + "\n")
	for _, l := range lines {
		fmt.Fprintf(b, "| %d × %dk", l.replicas, l.cache/1000)
		if mixed {
			fmt.Fprintf(b, ", seed %s", l.seeds)
		}
		b.WriteString(" |")
		for _, load := range loads {
			c := at[l][load]
			if c == nil {
				b.WriteString(strings.Repeat(" |", 2+len(r.ours)))
				continue
			}
			best, rival := c.best(ttft90)
			fmt.Fprintf(b, " %s | %.3g |", rival, best)
			for i := range r.ours {
				format := " %.2f |"
				if c.against(i, ttft90) > lostRatio {
					format = " **%.2f** |"
				}
				fmt.Fprintf(b, format, c.against(i, ttft90))
			}
		}
		b.WriteString("\n")
	}
}

// count is n cells.
func count(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// seedsOf names the seeds of cells.
func seedsOf(cells []*cell) string {
	var names []string
	for _, c := range cells {
		if name := c.seeds.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 1 && !strings.Contains(names[0], "-") {
		return "seed " + names[0]
	}
	return "seeds " + strings.Join(names, " or ")
}

func (c *cell) name() string {
	return fmt.Sprintf("%s, %d × %dk, load %g, seed %s", c.workload, c.replicas, c.cache/1000, c.load, c.seeds)
}

// short is the name of a policy in the page: {name: kv_cost, preset: agentic} is
// kv_cost agentic.
func short(policy string) string {
	text, ok := strings.CutPrefix(policy, "{name: ")
	if !ok {
		return policy
	}
	options, queue, _ := strings.Cut(text, "}")
	words := strings.Split(options, ", ")
	for i, w := range words {
		words[i] = strings.TrimPrefix(w, "preset: ")
	}
	return strings.Join(words, " ") + queue
}
