package admin

import (
	"fmt"
	"strconv"

	"pointsman/admin/page"
	"pointsman/cluster"
)

// peers is the part of the status page about the other agents.
func peers(c *cluster.Status) page.Section {
	s := page.Section{
		ID: "peers", Title: "Peers", Summary: fmt.Sprintf("Cluster %s, this agent is %s: %s.", c.Cluster, c.Agent, c.Bus),
		Columns:  []page.Cell{{Text: "Agent"}, {Text: "State"}},
		Problems: c.Warnings(),
	}
	number := func(text string) page.Cell { return page.Cell{Text: text, Number: true} }
	for _, name := range []string{"Seen", "Lag", "Messages", "Events", "Gaps", "Lists", "Differed"} {
		s.Columns = append(s.Columns, number(name))
	}
	states := map[string]string{"follows": "up", "asks": "draining", "silent": "down"}
	if !c.Ready {
		s.Summary += " It is joining: it waits for what the others know."
	}
	if len(c.Peers) == 0 {
		s.Summary += " No other agent has sent a message."
	}
	for _, p := range c.Peers {
		if p.State == "silent" {
			s.Problems = append(s.Problems, fmt.Sprintf("Agent %s of the cluster has been silent for %.0f s.", p.Agent, p.Age))
		}
		count := func(n uint64) page.Cell { return number(strconv.FormatUint(n, 10)) }
		s.Rows = append(s.Rows, []page.Cell{
			{Text: p.Agent}, {Text: p.State, State: states[p.State]}, number(fmt.Sprintf("%.1f s ago", p.Age)), number(fmt.Sprintf("%.1f ms", p.Lag*1000)),
			count(p.Messages), count(p.Events), count(p.Gaps), count(p.Lists), count(p.Differed),
		})
	}
	return s
}
