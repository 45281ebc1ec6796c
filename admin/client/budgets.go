package client

import (
	"fmt"
	"io"
	"text/tabwriter"

	"pointsman/decider/budget"
)

// printBudgets prints the limits of tokens.
func printBudgets(w io.Writer, s *budget.Status) {
	if len(s.Limits) == 0 {
		return
	}
	fmt.Fprintln(w, "\nbudgets")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  limit\tby\ta minute\ta day\tin use\texhausted\trefused\t")
	for _, l := range s.Limits {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%d\t%d\t\n", l.Name, l.By, most(l.PerMinute), most(l.PerDay), l.Accounts, l.Exhausted, l.Refused)
	}
	t.Flush()
	if s.Overflowed > 0 {
		fmt.Fprintf(w, "  %d requests of keys without a name were counted together: more than max_accounts (%d) have come\n", s.Overflowed, s.Most)
	}
}

func most(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
