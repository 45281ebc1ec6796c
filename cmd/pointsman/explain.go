package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

type explainCmd struct {
	Body   string   `arg:"" optional:"" default:"-" help:"File with the request's body; - is standard input."`
	Admin  string   `default:"127.0.0.1:9909" help:"Admin address of the agent (${default})."`
	Path   string   `default:"/v1/chat/completions" help:"Path of the request (${default})."`
	Header []string `short:"H" sep:"none" help:"Header of the request, as 'name: value'; may be repeated."`
	JSON   bool     `help:"Print the answer as JSON."`
}

func (c *explainCmd) Run() error {
	in := io.Reader(os.Stdin)
	if c.Body != "-" {
		f, err := os.Open(c.Body)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, 16<<20))
	if err != nil {
		return err
	}
	u := "http://" + c.Admin + "/debug/explain?path=" + url.QueryEscape(c.Path)
	req, err := http.NewRequest(http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("header %q: want 'name: value'", h)
		}
		req.Header.Set("Explain-"+strings.TrimSpace(name), strings.TrimSpace(value))
	}
	answer, err := ask(req)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := os.Stdout.Write(answer)
		return err
	}
	var refused struct {
		Status int
		Reason string
	}
	if sonic.Unmarshal(answer, &refused) == nil && refused.Status != 0 {
		fmt.Printf("refused with %d: %s\n", refused.Status, refused.Reason)
		return nil
	}
	var x decider.Explanation
	if err := sonic.Unmarshal(answer, &x); err != nil {
		return fmt.Errorf("answer of %s: %w", c.Admin, err)
	}
	printExplanation(os.Stdout, &x)
	return nil
}

// ask sends a request to the admin address and returns the body of its answer.
func ask(req *http.Request) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("is the agent running, with its admin address there? %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != "application/json" {
		return nil, errors.New(strings.TrimSpace(string(b)))
	}
	return b, nil
}

func printExplanation(w io.Writer, x *decider.Explanation) {
	fmt.Fprintf(w, "pool %s, policy %s\n", x.Pool, x.Policy)
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
	}{{x.Stream, "streamed"}, {x.Session, "with a session"}, {x.Cut, "cut"}} {
		if f.on {
			seen = append(seen, f.text)
		}
	}
	fmt.Fprintln(w, "request:", strings.Join(seen, ", "))
	switch {
	case x.Server != "":
		fmt.Fprintf(w, "decision: %s, then %s\n\n", x.Server, strings.Join(append(x.Fallbacks, "the proxy's own balancing"), ", "))
	case x.Queue != nil && x.Queue.NoReplica:
		fmt.Fprintf(w, "decision: none (%s), held until a replica is up\n\n", x.Why)
	case x.Refused != 0:
		fmt.Fprintf(w, "decision: none (%s), refused with %d\n\n", x.Why, x.Refused)
	default:
		fmt.Fprintf(w, "decision: none (%s), the proxy balances by itself\n\n", x.Why)
	}
	if q := x.Queue; q != nil {
		deadline := ""
		if q.Deadline > 0 {
			deadline = fmt.Sprintf(", deadline in %.1fs", q.Deadline)
		}
		fmt.Fprintf(w, "queue: band %s, tenants %s, %d ahead, expected wait %.1fs%s\n\n", q.Band, q.Class, q.Ahead, q.Wait, deadline)
	}
	terms := termNames(x.Candidates)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(append([]string{"RANK", "REPLICA", "IN FLIGHT", "ENGINE HEARD"}, append(terms, "EXCLUDED", "SATURATED")...), "\t"))
	slices.SortStableFunc(x.Candidates, func(a, b decider.Candidate) int { return rankOrder(a) - rankOrder(b) })
	for _, c := range x.Candidates {
		rank := "-"
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		heard := "never"
		if c.SignalAge != nil {
			heard = fmt.Sprintf("%.1f s ago", *c.SignalAge)
		}
		row := []string{rank, c.Replica, fmt.Sprint(c.InFlight), heard}
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
}

// figure is a number with four digits, or all of those before the point.
func figure(v float64) string {
	if v >= 1000 || v <= -1000 {
		return fmt.Sprintf("%.0f", v)
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
