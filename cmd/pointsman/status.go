package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
	"pointsman/decider"
	"pointsman/engine"
)

type statusCmd struct {
	Admin string        `default:"127.0.0.1:9909" help:"Admin address of the agent (${default})."`
	Every time.Duration `help:"Refresh the table this often, until interrupted; by default 1s on a terminal, else print once."`
	Once  bool          `help:"Print once, on a terminal too."`
	JSON  bool          `help:"Print the answer as JSON, once."`

	Signals bool `help:"Show what the engines say of themselves, and how old that is."`
}

func (c *statusCmd) Run() error {
	terminal := isTerminal(os.Stdout)
	if c.Every == 0 && terminal && !c.Once && !c.JSON {
		c.Every = time.Second
	}
	path := "/status"
	if c.Signals {
		path = "/signals"
	}
	for {
		req, err := http.NewRequest(http.MethodGet, "http://"+c.Admin+path, nil)
		if err != nil {
			return err
		}
		b, err := ask(req)
		if c.JSON && err == nil {
			_, err = os.Stdout.Write(b)
			return err
		}
		var text strings.Builder
		if err == nil {
			err = show(&text, b, c.Signals)
		}
		if c.Every == 0 || c.Once {
			fmt.Print(text.String())
			return err
		}
		if err != nil {
			text.WriteString(err.Error() + "\n") // it may come back
		}
		if terminal {
			fmt.Print("\x1b[H\x1b[2J")
		}
		fmt.Print(time.Now().Format("15:04:05  "), text.String())
		time.Sleep(c.Every)
	}
}

// show prints an answer of /status, or of /signals.
func show(w io.Writer, answer []byte, signals bool) error {
	if signals {
		var list []engine.Status
		if err := sonic.Unmarshal(answer, &list); err != nil {
			return err
		}
		printSignals(w, list)
		return nil
	}
	var s admin.Status
	if err := sonic.Unmarshal(answer, &s); err != nil {
		return err
	}
	printStatus(w, &s)
	return nil
}

// printSignals prints a table of what the engines say; - is what they do not.
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

// blocksOf tells of the events of a KV cache: how many blocks they make, and
// what is wrong with them.
func blocksOf(s engine.Status) string {
	b := s.Blocks
	switch {
	case b == nil:
		return "-"
	case b.Online == 0:
		return "offline"
	case b.Strange > 0:
		return fmt.Sprintf("%d, %d strange", b.Blocks, b.Strange)
	}
	return fmt.Sprint(b.Blocks)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func printStatus(w io.Writer, s *admin.Status) {
	fmt.Fprintf(w, "pointsman %s\n", s.Version)
	for _, p := range s.Pools {
		models := "any model"
		if len(p.Models) > 0 {
			models = strings.Join(p.Models, ", ")
		}
		fmt.Fprintf(w, "\npool %s, %s: %s, %d in flight\n", p.Name, p.Policy, models, p.Reservations)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "  replica\taddress\tstate\tweight\tin flight\twaiting\ttokens\tchosen\tserved\tfailed\t")
		for _, r := range p.Replicas {
			state := r.State
			if state == "cooling" {
				state = fmt.Sprintf("cooling %.0fs", r.CoolFor)
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
				r.Name, r.Address, state, r.Weight, r.InFlight, r.Waiting, r.Tokens, r.Chosen, r.Served, r.Failed)
		}
		t.Flush()
		if p.Admission != nil {
			printQueue(w, p.Admission)
		}
		if len(p.Replicas) == 0 {
			fmt.Fprintln(w, "  no replicas: none in the configuration, and none found at the proxy yet")
		}
	}
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
		fmt.Fprintf(w, "  waiting in %s, %d replicas without room, expected wait of the last band %.1fs\n", where, a.Saturated, a.Wait)
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
