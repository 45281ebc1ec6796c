package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Limits of a lost cell.
const (
	lostRatio = 1.10 // of the TTFT p90 to the best rival's
	lostGood  = 0.01 // goodput below the best rival's
)

// best returns the smallest figure of the rivals, and that rival.
func (c *cell) best(of func(*figures) float64) (x float64, policy string) {
	x = math.Inf(1)
	for i := range c.rivals {
		if y := of(&c.rivals[i]); y < x {
			x, policy = y, c.rivals[i].policy
		}
	}
	return x, policy
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

// writeMarkdown writes a summary of our policies, and each cell.
func writeMarkdown(w io.Writer, cells []*cell) error {
	var b strings.Builder
	if len(cells) == 0 {
		_, err := io.WriteString(w, "no cells\n")
		return err
	}
	fmt.Fprintf(&b, "%d cells, ratios to the best rival of each cell:\n\n", len(cells))
	b.WriteString("| policy | TTFT p90, geometric mean | worst | TTFT p99 | end to end p90 | goodput within 1 point | lost cells |\n|---|---|---|---|---|---|---|\n")
	var lost []string
	for i := range cells[0].ours {
		p90, p99, e2e, worst, kept, losses := 0.0, 0.0, 0.0, 0.0, 0, 0
		for _, c := range cells {
			f, n := &c.ours[i], float64(len(cells))
			of := func(figure func(*figures) float64) float64 {
				best, _ := c.best(figure)
				return ratio(figure(f), best)
			}
			r := of(ttft90)
			p90, p99, e2e, worst = p90+math.Log(r)/n, p99+math.Log(of(ttft99))/n, e2e+math.Log(of(e2e90))/n, max(worst, r)
			if least, _ := c.best(bad); bad(f) <= least+lostGood {
				kept++
			}
			if r > lostRatio {
				losses++
				best, name := c.best(ttft90)
				lost = append(lost, fmt.Sprintf("| %s | %s | %.3g s | %s | %.3g s | %.2f |\n", f.policy, c.name(), f.ttft90, name, best, r))
			}
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.2f | %.3f | %.3f | %.0f%% | %d |\n", cells[0].ours[i].policy,
			math.Exp(p90), worst, math.Exp(p99), math.Exp(e2e), 100*float64(kept)/float64(len(cells)), losses)
	}
	if len(lost) > 0 {
		fmt.Fprintf(&b, "\nCells lost by more than %.0f %% of the TTFT p90:\n\n", 100*(lostRatio-1))
		b.WriteString("| policy | cell | TTFT p90 | best rival | its TTFT p90 | ratio |\n|---|---|---|---|---|---|\n" + strings.Join(lost, ""))
	}
	b.WriteString("\nEach cell, TTFT p90, and the other figures as ratios to the best rival's:\n\n| world | replicas × cache | load | seed | best rival | s |")
	for _, f := range cells[0].ours {
		fmt.Fprintf(&b, " %s | p99 | end to end | goodput |", f.policy)
	}
	b.WriteString(" best goodput |\n|---|---|---|---|---|---|---|" + strings.Repeat("---|---|---|---|", len(cells[0].ours)) + "\n")
	for _, c := range cells {
		best, name := c.best(ttft90)
		least, _ := c.best(bad)
		p99, _ := c.best(ttft99)
		e2e, _ := c.best(e2e90)
		fmt.Fprintf(&b, "| %s | %d × %dk | %g | %s | %s | %.3g |", c.world, c.replicas, c.cache/1000, c.load, c.seeds, name, best)
		for i := range c.ours {
			f := &c.ours[i]
			fmt.Fprintf(&b, " %.2f | %.2f | %.2f | %.0f%% |", ratio(f.ttft90, best), ratio(f.ttft99, p99), ratio(f.e2e90, e2e), 100*f.good)
		}
		fmt.Fprintf(&b, " %.0f%% |\n", 100*(1-least))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *cell) name() string {
	return fmt.Sprintf("%s, %d × %dk, load %g, seed %s", c.world, c.replicas, c.cache/1000, c.load, c.seeds)
}
