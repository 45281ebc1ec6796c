package client

import (
	"fmt"
	"io"
	"text/tabwriter"

	"pointsman/cluster"
)

// printCluster prints the other agents.
func printCluster(w io.Writer, c *cluster.Status) {
	fmt.Fprintf(w, "cluster %s, as %s: %s\n", c.Cluster, c.Agent, c.Bus)
	if !c.Ready {
		fmt.Fprintln(w, "  joining: it waits for what the others know")
	}
	for _, warn := range c.Warnings() {
		fmt.Fprintf(w, "  %s\n", warn)
	}
	if len(c.Peers) == 0 {
		fmt.Fprintln(w, "  no other agent has sent a message")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  agent\tstate\tseen\tlag\tmessages\tevents\tgaps\tlists\tdiffered\tepoch\t")
	for _, p := range c.Peers {
		fmt.Fprintf(t, "  %s\t%s\t%s ago\t%.1fms\t%d\t%d\t%d\t%d\t%d\t%s\t\n",
			p.Agent, p.State, shortly(p.Age), p.Lag*1000, p.Messages, p.Events, p.Gaps, p.Lists, p.Differed, p.Epoch)
	}
	t.Flush()
}
