package main

import (
	"fmt"
	"slices"
	"strings"
)

// losses lists each figure in which pointsman is behind another router, and by how much.
func (b *bench) losses(w *strings.Builder) {
	if !slices.ContainsFunc(b.rivals, isRouter) {
		return
	}
	w.WriteString("## What is lost\n\n")
	none := true
	for _, own := range b.rivals {
		if !strings.HasPrefix(own.name, "pointsman-") {
			continue
		}
		for _, other := range b.rivals {
			if !isRouter(other) {
				continue
			}
			if list := b.behind(own, other); len(list) > 0 {
				none = false
				fmt.Fprintf(w, "- %s to %s: %s.\n", own.title, other.title, strings.Join(list, "; "))
			}
		}
	}
	if none {
		w.WriteString("Nothing to any router that ran.\n")
	}
}

// isRouter reports whether r is a router of somebody else's.
func isRouter(r *rival) bool {
	return !r.part && !strings.HasPrefix(r.name, "pointsman-") && r.name != "haproxy" && r.name != "nginx"
}

// behind lists the figures in which own is worse than other, with the ratio.
func (b *bench) behind(own, other *rival) (list []string) {
	add := func(worse float64, format string, args ...any) {
		if worse > 1 {
			list = append(list, fmt.Sprintf("%s (× %.2f)", fmt.Sprintf(format, args...), worse))
		}
	}
	for _, t := range tables {
		for _, c := range t.cells {
			ours, theirs := b.figures[c.key][own.name], b.figures[c.key][other.name]
			if len(ours) == 0 || len(theirs) == 0 {
				continue
			}
			if c.more {
				ours, theirs = theirs, ours
			}
			add(ratio(ours, theirs), "%s at %s", t.part, c.title)
		}
	}
	f, ran := b.lost[own.name]
	if g, too := b.lost[other.name]; ran && too {
		if f.engine > g.engine {
			list = append(list, fmt.Sprintf("failures of a killed engine (%d against %d)", f.engine, g.engine))
		}
		if f.router > g.router {
			list = append(list, fmt.Sprintf("failures of what chooses (%d against %d)", f.router, g.router))
		}
	}
	for _, load := range talkLoads {
		ours, ran := b.seen[own.name][load]
		theirs, too := b.seen[other.name][load]
		if !ran || !too {
			continue
		}
		for _, p := range []struct {
			name string
			a, b float64
		}{{"p50", ours.TTFT.P50, theirs.TTFT.P50}, {"p90", ours.TTFT.P90, theirs.TTFT.P90}, {"p99", ours.TTFT.P99, theirs.TTFT.P99}} {
			if p.b > 0 {
				add(p.a/p.b, "%s of the time to the first token at load %g", p.name, load)
			}
		}
	}
	return list
}
