package client

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"pointsman/link"
)

// printLinks prints the state of the proxies, and their problems.
func printLinks(w io.Writer, links []link.Status) {
	if len(links) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  proxy\tconnected\tquestions\tper s\tfeed line\tunreported\tunanswered\tmismatches\tnot asked\t")
	for _, l := range links {
		connected, line := "no", "never"
		if l.Connected {
			connected = "yes"
		}
		if l.FeedAge >= 0 {
			line = fmt.Sprintf("%.1fs ago", l.FeedAge)
		}
		name, bypassed := l.Proxy, uint64(0)
		if l.Version != "" {
			name += " " + l.Version
		}
		for _, n := range l.Bypassed {
			bypassed += n
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%.1f\t%s\t%d\t%d\t%d\t%d\t\n",
			name, connected, l.Questions, l.Rate, line, l.Unreported, l.Unanswered, l.Mismatches, bypassed)
	}
	t.Flush()
	for _, l := range links {
		if l.Problem != "" {
			fmt.Fprintf(w, "  %s: %s\n", l.Proxy, l.Problem)
		}
		for _, f := range l.Faults {
			fmt.Fprintf(w, "  %s: %s: %s\n", l.Proxy, f.Problem, f.Remedy)
		}
		for _, name := range slices.Sorted(maps.Keys(l.Bypassed)) {
			fmt.Fprintf(w, "  %s: %s of frontend %s reached a pool without a question\n", l.Proxy, plural(l.Bypassed[name], "request"), name)
		}
	}
}
