package cluster

import (
	"io"
	"testing"
	"time"
)

// TestMetricsWhileConnecting asks for metrics while the node connects: the agent serves
// them before. The race detector finds unguarded fields.
func TestMetricsWhileConnecting(t *testing.T) {
	n := &testNet{now: time.Hour}
	node := newTestNode(n, "a", "secret")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			node.WriteMetrics(io.Discard)
		}
	}()
	if err := node.Connect(n.connect("again")); err != nil {
		t.Error(err)
	}
	<-done
}
