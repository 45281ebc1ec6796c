package client

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

// PrintExplanation prints an answer of Explain: the request as it was read, the decision,
// and each candidate with the terms of its score.
func PrintExplanation(w io.Writer, answer []byte) error {
	var refused struct {
		Status      int
		Reason, Why string
	}
	if sonic.Unmarshal(answer, &refused) == nil && refused.Status != 0 {
		fmt.Fprintf(w, "refused with %d: %s\n", refused.Status, refused.Reason)
		if refused.Why == "unknown_model" {
			fmt.Fprintln(w, "No pool lists this model. Where the proxy chooses the pool, name it with --pool.")
		}
		return nil
	}
	var x decider.Explanation
	if err := sonic.Unmarshal(answer, &x); err != nil {
		return err
	}
	printExplanation(w, &x)
	return nil
}

func printExplanation(w io.Writer, x *decider.Explanation) {
	fmt.Fprintf(w, "pool %s, policy %s\n", x.Pool, x.Policy)
	fmt.Fprintln(w, "request:", request(x))
	fmt.Fprintf(w, "decision: %s\n", decision(x))
	if x.Legs != nil {
		fmt.Fprintf(w, "prompt: %s\n", prefill(x.Legs))
	}
	fmt.Fprintln(w)
	if q := x.Queue; q != nil {
		deadline := ""
		if q.Deadline > 0 {
			deadline = fmt.Sprintf(", deadline in %.1fs", q.Deadline)
		}
		fmt.Fprintf(w, "queue: band %s, tenants %s, %d ahead, expected wait %.1fs%s\n\n", q.Band, q.Class, q.Ahead, q.Wait, deadline)
	}
	if x.Budget != nil {
		fmt.Fprintf(w, "budget: %s\n\n", x.Budget)
	}
	printCandidates(w, x.Candidates)
}

// request describes the request as it was read.
func request(x *decider.Explanation) string {
	seen := []string{fmt.Sprintf("about %d prompt tokens", x.Input)}
	if x.Output >= 0 {
		seen = append(seen, fmt.Sprintf("at most %d output tokens", x.Output))
	}
	if x.Model != "" {
		seen = append(seen, "model "+x.Model)
	}
	for _, f := range []struct {
		on   bool
		text string
	}{{x.Stream, "streamed"}, {x.Session, "with a session"}, {x.Cut, "truncated"}} {
		if f.on {
			seen = append(seen, f.text)
		}
	}
	return strings.Join(seen, ", ")
}

// decision describes where the request would go.
func decision(x *decider.Explanation) string {
	switch {
	case x.Server != "":
		return fmt.Sprintf("%s, then %s", x.Server, strings.Join(append(x.Fallbacks, "the proxy's own balancing"), ", "))
	case x.Queue != nil && x.Queue.NoReplica:
		return fmt.Sprintf("none (%s), held until a replica is up", x.Why)
	case x.Refused != 0:
		return fmt.Sprintf("none (%s), refused with %d", x.Why, x.Refused)
	}
	return fmt.Sprintf("none (%s), the proxy balances by itself", x.Why)
}

// notComputed says why a decode replica computes the prompt itself, if the reason is not
// time.
var notComputed = map[string]string{
	"role": "its role is not decode", "one_token": "the answer is one token", "cached": "it has all of it",
	"no_prefill_replica": "no prefill replica can take it",
}

// prefill describes where the prompt would be computed.
func prefill(l *decider.Legs) string {
	there := fmt.Sprintf("%.2f s there and %.2f s for the transfer, against %.2f s on the decode replica with what it delays", l.There, l.Moved, l.Here)
	if why, ok := notComputed[l.Why]; ok {
		return "computed by the replica of the decision: " + why
	}
	if l.Why == "tokens" {
		there = "by prefill_tokens"
	}
	if l.Prefill == "" {
		return "computed by the replica of the decision: " + there
	}
	return "computed by " + l.Prefill + ": " + there
}

// printCandidates prints a row for each candidate, the chosen ones first.
func printCandidates(w io.Writer, list []decider.Candidate) {
	terms := termNames(list)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(append([]string{"RANK", "REPLICA", "IN FLIGHT", "SIGNAL AGE", "CACHED TOKENS"}, append(terms, "EXCLUDED", "SATURATED")...), "\t"))
	slices.SortStableFunc(list, func(a, b decider.Candidate) int { return rankOrder(a) - rankOrder(b) })
	for _, c := range list {
		rank, age := "-", "never"
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		if c.SignalAge != nil {
			age = fmt.Sprintf("%.1f s ago", *c.SignalAge)
		}
		cached := "-"
		if c.Cached != nil {
			cached = fmt.Sprint(*c.Cached)
			if c.CachedCPU > 0 {
				cached += fmt.Sprintf(", %d in CPU memory", c.CachedCPU)
			}
			if c.CachedDisk > 0 {
				cached += fmt.Sprintf(", %d on disk", c.CachedDisk)
			}
		}
		row := []string{rank, c.Replica, fmt.Sprint(c.InFlight), age, cached}
		for _, name := range terms {
			cell := ""
			if v, ok := c.Terms[name]; ok {
				cell = figure(v)
			}
			row = append(row, cell)
		}
		fmt.Fprintln(t, strings.Join(append(row, c.Excluded, c.Saturated), "\t"))
	}
	t.Flush()
	printOthers(w, list)
}

// printOthers prints what other agents have published about the candidates.
func printOthers(w io.Writer, list []decider.Candidate) {
	first := true
	for _, c := range list {
		o := c.Others
		if o == nil {
			continue
		}
		if first {
			fmt.Fprintln(w, "\nof these, by way of other agents:")
			first = false
		}
		fmt.Fprintf(w, "  %s: %d in flight, a prefill backlog of %s tokens, %d of the prompt's tokens in use by them, reported %s ago\n",
			c.Replica, o.InFlight, figure(o.Prefill), o.Cached, shortly(o.Age))
	}
}

// figure is a number with four digits, or all of those before the point. What would need
// an exponent is about 0.
func figure(v float64) string {
	switch size := math.Abs(v); {
	case size >= 999.5:
		return fmt.Sprintf("%.0f", v)
	case size > 0 && size < 1e-4:
		return "≈0"
	}
	return fmt.Sprintf("%.4g", v)
}

// rankOrder sorts the chosen ones first, the excluded ones last.
func rankOrder(c decider.Candidate) int {
	switch {
	case c.Rank > 0:
		return c.Rank
	case c.Excluded != "":
		return 5
	}
	return 4
}

// termNames are the names of all terms, sorted.
func termNames(cs []decider.Candidate) []string {
	seen := map[string]bool{}
	var names []string
	for _, c := range cs {
		for n := range c.Terms {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return names
}
