package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// chosenBy summarizes the rivals that one seed chooses, the best of each cell, by the other
// seeds: against the best rival that these have. It leaves out what it does not compare.
func chosenBy(cells []*cell, seed int) (s summary) {
	for _, c := range cells {
		k := seed - c.seeds.from
		chosen, others := c.bySeed[k], means(slices.Delete(slices.Clone(c.bySeed), k, k+1))
		r := ratio(others[least(chosen, ttft90)].ttft90, others[least(others, ttft90)].ttft90)
		s.cells++
		s.p90 += math.Log(r)
		if r > lostRatio {
			s.lost++
		}
		if bad(&others[least(chosen, bad)]) <= bad(&others[least(others, bad)])+lostGood {
			s.kept++
		}
	}
	return s
}

// least returns the index of the smallest figure.
func least(list []figures, of func(*figures) float64) int {
	best := 0
	for i := range list {
		if of(&list[i]) < of(&list[best]) {
			best = i
		}
	}
	return best
}

// chance writes what is lost by chance alone: the best rival of each cell is no single policy,
// and with other seeds it is often another one.
func (r *results) chance(b *strings.Builder) {
	of := r.cells[0].seeds
	if of.from == of.to || len(r.cells[0].rivals) == 0 || slices.ContainsFunc(r.cells, func(c *cell) bool { return c.seeds != of }) {
		return
	}
	fmt.Fprintf(b, "\nChance: the rival with the lowest TTFT p90 of each cell by one seed, and likewise the one with the highest goodput, judged by the other seeds:\n\n"+
		"| chosen by seed | TTFT p90 | lost | goodput within 1 point |\n|---|---|---|---|\n")
	for seed := of.from; seed <= of.to; seed++ {
		s := chosenBy(r.cells, seed)
		n := float64(s.cells)
		fmt.Fprintf(b, "| %d | %.3f | %d | %.0f%% |\n", seed, math.Exp(s.p90/n), s.lost, 100*float64(s.kept)/n)
	}
}
