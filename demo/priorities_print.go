package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func (r *PriorityResult) print(w io.Writer) {
	fmt.Fprintf(w, "\nTime to first token through %s %s, policy %s, milliseconds:\n", r.Proxy, r.Version, r.Policy)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tchat p50\tp90\tp99\tbatch p50\tp90\tp99\tserved\tfailed\t")
	for _, run := range r.Runs {
		name := "without bands"
		if run.Bands {
			name = "with bands"
		}
		a, b := run.TTFT[chatBand], run.TTFT[batchBand]
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%d\t\n", name, a.P50, a.P90, a.P99, b.P50, b.P90, b.P99, run.Served, run.Failed)
	}
	t.Flush()
	for _, run := range r.Runs {
		for _, e := range run.errors {
			fmt.Fprintln(w, "  ", e)
		}
	}
}
