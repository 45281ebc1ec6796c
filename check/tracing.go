package check

import (
	"fmt"
	"time"

	"pointsman/advice"
	"pointsman/resolve"
	"pointsman/tracing"
)

// probeTime is how long the collector may take to answer.
const probeTime = 3 * time.Second

// checkTracing asks the collector of spans whether it accepts any. The agent works without
// one, so a failure is no fault.
func (rep *report) checkTracing(c *resolve.Config) {
	t := &c.File.Tracing
	if t.Endpoint == "" {
		return
	}
	if err := tracing.Probe(t.Endpoint, probeTime); err != nil {
		rep.found(advice.Finding{Level: advice.Warning, Rule: "tracing", Problem: fmt.Sprintf("the collector at %s takes no spans: %v", t.Endpoint, err),
			Remedy: "it must take OTLP over HTTP in protobuf, usually on port 4318; spans are lost until then, and nothing else"})
		return
	}
	fmt.Fprintf(rep, "tracing to %s: ok\n", t.Endpoint)
}
