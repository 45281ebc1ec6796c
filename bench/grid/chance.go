package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// choice is how the rivals do that were chosen by one seed, a rival for each cell.
type choice struct {
	lost, kept int     // cells, as in summary
	p90        float64 // sum of logarithms
}

// choose chooses the best rival of each cell by one seed, and judges it by the others against
// the best that these have.
func choose(cells []*cell, seed int) (s choice) {
	for _, c := range cells {
		chosen, others := c.bySeed[seed-c.seeds.from], c.without(seed)
		r := ratio(others[least(chosen, ttft90)].ttft90, others[least(others, ttft90)].ttft90)
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

// without returns the means of the rivals over all seeds but one.
func (c *cell) without(seed int) []figures {
	means := make([]figures, len(c.rivals))
	for k, list := range c.bySeed {
		for i := range list {
			if means[i].policy = list[i].policy; c.seeds.from+k != seed {
				means[i].add(&list[i], float64(len(c.bySeed)-1))
			}
		}
	}
	return means
}

// chance writes what is lost by chance alone: the best rival of each cell is no single policy,
// and with other seeds it is often another one.
func (r *results) chance(b *strings.Builder) {
	of := r.cells[0].seeds
	if of.from == of.to || slices.ContainsFunc(r.cells, func(c *cell) bool { return c.seeds != of }) {
		return
	}
	fmt.Fprintf(b, "\nChance: the rival with the lowest TTFT p90 of each cell by one seed, and likewise the one with the highest goodput, judged by the other seeds:\n\n"+
		"| chosen by seed | TTFT p90 | lost | goodput within 1 point |\n|---|---|---|---|\n")
	n := float64(len(r.cells))
	for seed := of.from; seed <= of.to; seed++ {
		s := choose(r.cells, seed)
		fmt.Fprintf(b, "| %d | %.3f | %d | %.0f%% |\n", seed, math.Exp(s.p90/n), s.lost, 100*float64(s.kept)/n)
	}
}
