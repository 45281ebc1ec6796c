package client

import (
	"fmt"
	"io"

	"pointsman/decider"
)

// printShadow prints the comparison of a pool in shadow.
func printShadow(w io.Writer, s *decider.ShadowStatus) {
	if s.Share == 1 {
		fmt.Fprintf(w, "  shadow: the proxy balances by itself; %s, %d compared\n", plural(s.Requests, "request"), s.Compared)
	} else {
		fmt.Fprintf(w, "  shadow: the proxy balances %.3g%% of the requests by itself; %d so far, %d compared\n", 100*s.Share, s.Requests, s.Compared)
	}
	if s.Compared == 0 {
		return
	}
	fmt.Fprintf(w, "    hit rate expected: %.1f%% on the replica chosen here, %.1f%% on the one that served\n", 100*s.HitRateChosen, 100*s.HitRateServed)
	fmt.Fprintf(w, "    TTFT expected, mean: %.3fs on the replica chosen here, %.3fs on the one that served\n", s.TTFTChosen, s.TTFTServed)
	fmt.Fprintf(w, "    sooner on the replica chosen here: %.0f%% of the requests; the same replica: %.0f%%\n", 100*s.Sooner, 100*s.SameReplica)
}
