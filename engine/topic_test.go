package engine

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/engine/kvevents"
)

// A topic names one replica; a host that several share names none, which is said.
func TestTopicsOfSharedHosts(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	var log strings.Builder
	w := NewWatch(d, vm.NewSet(), slog.New(slog.NewTextHandler(&log, nil)))
	pool := new(decider.Pool)
	all := map[string]*kvevents.Index{}
	for name, address := range map[string]string{"r1": "10.0.0.1:8000", "r2": "10.0.0.1:8001", "r3": "10.0.0.2:8000"} {
		all[name] = kvevents.NewIndex(t.Context(), pool, name, 16)
		w.indexes[source{pool: pool, replica: name, address: address}] = &index{Index: all[name]}
	}
	for topic, want := range map[string]string{
		"kv@10.0.0.1:8000@m": "r1", "kv@10.0.0.1:8001@m": "r2", "r2": "r2", "kv@10.0.0.2@m": "r3", "kv@10.0.0.1@m": "", "kv@10.0.0.9@m": "",
	} {
		if x, _ := w.find(pool, topic); x != all[want] {
			t.Errorf("%s does not lead to %q", topic, want)
		}
	}
	if s := log.String(); !strings.Contains(s, "several replicas share") {
		t.Errorf("logged %q", s)
	}
}
