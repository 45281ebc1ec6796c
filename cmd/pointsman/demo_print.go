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
)

// showProgress tells how far the workload is until done.
func showProgress(out *os.File, w *workload, total int, done <-chan struct{}) {
	live := interactive(out)
	pause := 2 * time.Second
	if live {
		pause = 100 * time.Millisecond
	}
	start := time.Now()
	line := func() string {
		n := int(w.done.Load())
		const width = 30
		full := min(width, width*n/total)
		bar := strings.Repeat("█", full) + strings.Repeat("░", width-full)
		return fmt.Sprintf("%s %d/%d requests, %d in flight, %.0f s", bar, n, total, w.running.Load(), time.Since(start).Seconds())
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

func (r *demoResult) print(w io.Writer) {
	fmt.Fprintf(w, "\nserved %d, failed %d\n", r.Served, r.Failed)
	for _, e := range r.errors {
		fmt.Fprintln(w, "  ", e)
	}
	fmt.Fprintf(w, "decided by the agent %d, balanced by the proxy alone %d\n", r.Decided, r.FellOpen)
	var ends []string
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		if n := r.Outcomes[name]; n > 0 {
			ends = append(ends, fmt.Sprintf("%s %d", name, n))
		}
	}
	fmt.Fprintf(w, "outcomes told by the feed: %s; still in flight %d\n", strings.Join(ends, ", "), r.InFlightAfter)
	fmt.Fprintf(w, "time to first token: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms\n", r.TTFT.P50, r.TTFT.P90, r.TTFT.P99)
	fmt.Fprintf(w, "prompt tokens found in the KV caches: %.1f %%\n\n", 100*r.HitRate)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "replica\trequests\tprompt tokens\tcached\t")
	for _, name := range slices.Sorted(maps.Keys(r.PerReplica)) {
		l := r.PerReplica[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t\n", name, l.Requests, l.PromptTokens, 100*l.HitRate)
	}
	t.Flush()
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
