package main

import (
	"fmt"
	"io"
)

// printSimulated prints one line a policy. spread is that of the p90 over the
// seeds.
func printSimulated(w io.Writer, rows []simulated, spread []float64) {
	width := len("policy")
	lost, varied := false, false
	for i, r := range rows {
		width = max(width, len(r.Policy))
		lost = lost || r.Failed+r.Refused > 0
		varied = varied || spread[i] > 0
	}
	fmt.Fprintf(w, "%-*s  %8s  %s  %9s  %6s  %9s", width, "policy", "hit rate",
		"TTFT mean       p50       p90       p99", "e2e p99", "good", "imbalance")
	if varied {
		fmt.Fprint(w, "  p90 spread")
	}
	if lost {
		fmt.Fprint(w, "  failed  refused")
	}
	fmt.Fprintln(w)
	for i, r := range rows {
		fmt.Fprintf(w, "%-*s  %8.4f  %7.2f s %7.2f s %7.2f s %7.2f s  %7.1f s  %5.1f%%  %9.2f", width, r.Policy, r.HitRate,
			r.TTFT.Mean, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99, r.E2E.P99, 100*r.Good, r.Imbalance)
		if varied {
			fmt.Fprintf(w, "  ±%8.1f%%", 100*spread[i])
		}
		if lost {
			fmt.Fprintf(w, "  %6.0f  %7.0f", r.Failed, r.Refused)
		}
		fmt.Fprintln(w)
	}
}
