package client

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
	"pointsman/decider"
	"pointsman/state"
)

// PrintStatus prints an answer of Status as tables.
func PrintStatus(w io.Writer, answer []byte) error {
	var s admin.Status
	if err := sonic.Unmarshal(answer, &s); err != nil {
		return err
	}
	printStatus(w, &s)
	return nil
}

func printStatus(w io.Writer, s *admin.Status) {
	fmt.Fprintf(w, "pointsman %s\n", s.Version)
	for _, r := range s.Refusals {
		fmt.Fprintf(w, "HAProxy refuses %s\n", r)
	}
	if s.RuntimeAPI != "" {
		fmt.Fprintln(w, s.RuntimeAPI)
	}
	if s.State != nil {
		fmt.Fprintf(w, "state %s\n", stateLine(s.State))
	}
	if s.Cluster != nil {
		printCluster(w, s.Cluster)
	}
	printLinks(w, s.Proxies)
	if s.Budgets != nil {
		printBudgets(w, s.Budgets)
	}
	for _, p := range s.Pools {
		models := "any model"
		if len(p.Models) > 0 {
			models = strings.Join(p.Models, ", ")
		}
		fmt.Fprintf(w, "\npool %s, %s: %s, %d in flight\n", p.Name, p.Policy, models, p.Reservations)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "  replica\taddress\t"+roleTitle(&p)+"state\tweight\tin flight\twaiting\ttokens\tchosen\tserved\tfailed\t")
		for _, r := range p.Replicas {
			state := r.State
			if state == "up" && !r.Seen {
				state = "unknown"
			}
			if state == "ejected" {
				state = fmt.Sprintf("ejected %.0fs", r.EjectedFor)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
				r.Name, r.Address, role(&p, r.Role), state, r.Weight, r.InFlight, r.Waiting, r.Tokens, r.Chosen, r.Served, r.Failed)
		}
		t.Flush()
		for i := range p.Replicas {
			if r := &p.Replicas[i]; r.Passed() {
				fmt.Fprintf(w, "  %s: the proxy gave the last %d requests that were decided for it to others: has it a server of this name, and is that up? pointsman check compares\n", r.Name, r.PassedOver)
			}
		}
		if l := p.Legs; l != nil {
			fmt.Fprintf(w, "  prompts computed by prefill replicas: %d of %d, %s\n", l.Legs, l.Legs+l.Local, plural(l.Tokens, "token"))
		}
		if p.Shadow != nil {
			printShadow(w, p.Shadow)
		}
		if p.Admission != nil {
			printQueue(w, p.Admission)
		}
		if len(p.Replicas) == 0 {
			fmt.Fprintln(w, "  no replicas: none in the configuration, and none found at the proxy yet")
		}
	}
}

// roleTitle is the heading of the column for roles, where there are any.
func roleTitle(p *decider.PoolStatus) string {
	if p.Legs == nil {
		return ""
	}
	return "role\t"
}

// role is a cell of that column.
func role(p *decider.PoolStatus, name string) string {
	switch {
	case p.Legs == nil:
		return ""
	case name == "":
		name = decider.RoleBoth.String()
	}
	return name + "\t"
}

// stateLine describes the memory that survives a restart.
func stateLine(s *state.Status) string {
	line := "in " + s.Dir + ": "
	if s.Age < 0 {
		line += "not written yet"
	} else {
		line += fmt.Sprintf("%s, written %s ago", size(s.Bytes), shortly(s.Age))
	}
	if s.Failures > 0 {
		line += ", " + plural(s.Failures, "write") + " failed"
	}
	r := s.Restored
	if r == nil {
		return line + "; began with none"
	}
	line += fmt.Sprintf("; restored %s ago, then %s old: %s, %s, %s", shortly(r.Ago), shortly(r.Age),
		plural(r.Blocks, "block"), plural(r.Sessions, "session"), plural(r.Requests, "request"))
	if r.Waiting > 0 {
		wait := " wait for their replicas"
		if r.Waiting == 1 {
			wait = " waits for its replicas"
		}
		line += ", " + plural(r.Waiting, "pool") + wait
	}
	return line
}

// size writes a number of bytes.
func size(bytes int64) string {
	if bytes < 100_000 {
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

// plural writes a number of things.
func plural[N int | int64 | uint64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// shortly is a number of seconds in the largest units.
func shortly(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// printQueue prints the bands of a pool.
func printQueue(w io.Writer, a *decider.AdmissionStatus) {
	where := "the agent"
	if !a.Hold {
		where = "the proxy"
	}
	if a.NoReplica {
		fmt.Fprintf(w, "  waiting in %s, until a replica is up\n", where)
	} else {
		fmt.Fprintf(w, "  waiting in %s, %s without capacity, expected wait of the last band %.1fs\n", where, plural(a.Saturated, "replica"), a.Wait)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  band\ttenants\tqueued\ttokens\toldest\theld\tadmitted\tmean wait\tfull\ttoo long\tdeadline\tno replica\tgone\t")
	for _, b := range a.Bands {
		for _, class := range slices.Sorted(maps.Keys(b.Counts)) {
			c := b.Counts[class]
			mean := c.WaitSeconds / float64(max(c.Admitted, 1))
			fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%.1fs\t%d\t%d\t%.2fs\t%d\t%d\t%d\t%d\t%d\t\n", b.Name, class, b.Queued, b.Tokens, b.Oldest,
				c.Held, c.Admitted, mean, c.Refused["queue_full"], c.Refused["waited_too_long"], c.Refused["deadline"], c.Refused["no_replica"], c.Gone)
		}
	}
	t.Flush()
}
