package client

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/bytedance/sonic"

	"pointsman/engine"
)

// PrintSignals prints an answer of Signals as a table; "-" is a value that an engine does
// not report.
func PrintSignals(w io.Writer, answer []byte) error {
	var list []engine.Status
	if err := sonic.Unmarshal(answer, &list); err != nil {
		return err
	}
	printSignals(w, list)
	return nil
}

func printSignals(w io.Writer, list []engine.Status) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "pool\treplica\tengine\tage\tevery\ttakes\twaiting\trunning\tKV used\tcache\tfirst tokens\thit rate\tKV blocks\tadapters\t")
	for _, s := range list {
		if s.Age < 0 {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t%.1f s\t-\t-\t-\t-\t-\t-\t-\t%s\t-\t\n", s.Pool, s.Replica, s.Pause, blocksOf(s))
			continue
		}
		cache, firsts, rate, adapters := "-", "-", "-", "-"
		if s.Cache > 0 {
			cache = fmt.Sprint(s.Cache)
		}
		if s.Firsts {
			firsts = "counted"
		}
		if s.HitRate >= 0 {
			rate = fmt.Sprintf("%.1f %%", 100*s.HitRate)
		}
		if s.Adapters != "" {
			adapters = s.Adapters
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f s\t%.1f s\t%.1f ms\t%d\t%d\t%.0f %%\t%s\t%s\t%s\t%s\t%s\t\n",
			s.Pool, s.Replica, s.Engine, s.Age, s.Pause, 1e3*s.Took, s.Waiting, s.Running, 100*s.KVUsage, cache, firsts, rate, blocksOf(s), adapters)
	}
	t.Flush()
	for _, s := range list {
		if s.Error != "" {
			fmt.Fprintf(w, "%s/%s: http://%s%s: %s\n", s.Pool, s.Replica, s.Address, s.Path, s.Error)
		}
	}
}

// blocksOf describes the KV events: how many blocks they add up to, and their problems.
func blocksOf(s engine.Status) string {
	b := s.Blocks
	switch {
	case b == nil:
		return "-"
	case b.Online == 0:
		return "offline"
	}
	text := fmt.Sprint(b.Blocks)
	if b.Orphans > 0 {
		text += ", " + plural(b.Orphans, "orphan")
	}
	if b.Strange > 0 {
		text += fmt.Sprintf(", %d strange", b.Strange)
	}
	if b.Overfull > 0 {
		text += ", overfull " + plural(b.Overfull, "time")
	}
	return text
}
