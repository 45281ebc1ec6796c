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
		Columns:  []string{"Agent", "State", "Heard", "Lag", "Messages", "Events", "Gaps", "Lists", "Differed"},
		Problems: c.Warnings(),
	}
	if !c.Ready {
		s.Summary += " It is joining: it waits for what the others know."
	}
	if len(c.Peers) == 0 {
		s.Summary += " No other agent has been heard."
	}
	for _, p := range c.Peers {
		if p.State == "silent" {
			s.Problems = append(s.Problems, fmt.Sprintf("Agent %s of the cluster has been silent for %.0f s.", p.Agent, p.Age))
		}
		count := func(n uint64) string { return strconv.FormatUint(n, 10) }
		s.Rows = append(s.Rows, []string{
			p.Agent, p.State, fmt.Sprintf("%.1f s ago", p.Age), fmt.Sprintf("%.1f ms", p.Lag*1000),
			count(p.Messages), count(p.Events), count(p.Gaps), count(p.Lists), count(p.Differed),
		})
	}
	return s
}
