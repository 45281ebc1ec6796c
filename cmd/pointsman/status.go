package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
)

type statusCmd struct {
	Admin string        `default:"127.0.0.1:9909" help:"Admin address of the agent (${default})."`
	Every time.Duration `help:"Refresh the table this often, until interrupted; by default 1s on a terminal, else print once."`
	Once  bool          `help:"Print once, on a terminal too."`
	JSON  bool          `help:"Print the answer as JSON, once."`
}

func (c *statusCmd) Run() error {
	terminal := isTerminal(os.Stdout)
	if c.Every == 0 && terminal && !c.Once && !c.JSON {
		c.Every = time.Second
	}
	for {
		req, err := http.NewRequest(http.MethodGet, "http://"+c.Admin+"/status", nil)
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
			var s admin.Status
			if err = sonic.Unmarshal(b, &s); err == nil {
				printStatus(&text, &s)
			}
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
		if len(p.Replicas) == 0 {
			fmt.Fprintln(w, "  no replicas: none in the configuration, and none found at the proxy yet")
		}
	}
}
