package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"pointsman/decider"
)

// showProgress tells how far the workload is until done.
func showProgress(out *os.File, l *traffic, done <-chan struct{}) {
	total := len(l.calls)
	live := interactive(out)
	pause := 2 * time.Second
	if live {
		pause = 100 * time.Millisecond
	}
	start := time.Now()
	line := func() string {
		n := int(l.done.Load())
		const width = 30
		full := min(width, width*n/total)
		bar := strings.Repeat("█", full) + strings.Repeat("░", width-full)
		return fmt.Sprintf("%s %d/%d requests, %d in flight, %.0f s", bar, n, total, l.running.Load(), time.Since(start).Seconds())
	}
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if live {
				fmt.Fprintf(out, "\r\x1b[K%s", line())
			} else {
				fmt.Fprintln(out, line())
			}
		case <-done:
			if live {
				fmt.Fprintf(out, "\r\x1b[K")
			}
			fmt.Fprintln(out, line())
			return
		}
	}
}

// printDemo prints what happened, and beside it what the simulator predicts.
func printDemo(w io.Writer, results []*demoResult) {
	for _, r := range results {
		r.print(w)
	}
	fmt.Fprintln(w, "\nMeasured through the proxy, and in brackets what the simulator says of the same workload:")
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
	fmt.Fprintln(w, "Cached is what the engines told; expected is what the agent believed when it chose.\n"+
		"Measured times include what proxy, agent, engines and clients take from each other on this machine.")
}

func (r *demoResult) print(w io.Writer) {
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
	fmt.Fprintf(w, "outcomes told by the feed: %s; still in flight %d\n", strings.Join(ends, ", "), r.InFlightAfter)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "replica\trequests\tprompt tokens\tcached\t")
	for _, name := range slices.Sorted(maps.Keys(r.PerReplica)) {
		l := r.PerReplica[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t\n", name, l.Requests, l.PromptTokens, 100*l.HitRate)
	}
	t.Flush()
}

// sumChosen counts the decisions that named a replica.
func sumChosen(replicas []decider.ReplicaStatus) (n uint64) {
	for _, r := range replicas {
		n += r.Chosen
	}
	return n
}

// percentilesOf gives the percentiles in milliseconds.
func percentilesOf(d []time.Duration) percentiles {
	if len(d) == 0 {
		return percentiles{}
	}
	s := slices.Sorted(slices.Values(d))
	at := func(p float64) float64 {
		ms := s[int(p*float64(len(s)-1)+0.5)].Seconds() * 1e3
		return float64(int(ms*100+0.5)) / 100
	}
	return percentiles{at(.5), at(.9), at(.99)}
}

// metric sums the samples of a name on a page of Prometheus metrics.
func metric(page, name string) (sum float64) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		f := strings.Fields(rest)
		if v, err := strconv.ParseFloat(f[len(f)-1], 64); err == nil {
			sum += v
		}
	}
	return sum
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
