package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// printResults prints what happened, and beside it what the simulator predicts.
func printResults(w io.Writer, results []*Result) {
	for _, r := range results {
		r.print(w)
	}
	fmt.Fprintln(w, "\nMeasured through the proxy, and in brackets what the simulator predicts:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tfirst token p50 ms\tp90 ms\tp99 ms\tprompt cached\texpected\t")
	both := func(format string, measured, predicted float64) string {
		return fmt.Sprintf(format+" ("+format+")", measured, predicted)
	}
	for _, r := range results {
		m, p := r.TTFT, r.Predicted.TTFT
		expected := "-" // only some policies look at prompts
		if r.Expected > 0 {
			expected = fmt.Sprintf("%.1f %%", 100*r.Expected)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Policy, both("%.0f", m.P50, p.P50), both("%.0f", m.P90, p.P90),
			both("%.0f", m.P99, p.P99), both("%.1f %%", 100*r.HitRate, 100*r.Predicted.HitRate), expected)
	}
	t.Flush()
	fmt.Fprintln(w, "Cached is what the engines report; expected is what the agent estimated when it decided.\n"+
		"Measured times include what proxy, agent, engines and clients cost each other on this machine.")
}

func (r *Result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: served %d, failed %d; decided by the agent %d, balanced by the proxy alone %d\n",
		r.Policy, r.Served, r.Failed, r.Decided, r.FellOpen)
	for _, e := range r.errors {
		fmt.Fprintln(w, "  ", e)
	}
	var ends []string
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		if n := r.Outcomes[name]; n > 0 {
			ends = append(ends, fmt.Sprintf("%s %d", name, n))
		}
	}
	fmt.Fprintf(w, "outcomes reported by the feed: %s; still in flight %d\n", strings.Join(ends, ", "), r.InFlightAfter)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "replica\trequests\tprompt tokens\tcached\t")
	for _, name := range slices.Sorted(maps.Keys(r.PerReplica)) {
		l := r.PerReplica[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t\n", name, l.Requests, l.PromptTokens, 100*l.HitRate)
	}
	t.Flush()
}
