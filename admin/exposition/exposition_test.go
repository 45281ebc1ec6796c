package exposition

import (
	"strings"
	"testing"
)

// Samples of one metric come together below its text and type, comments go, and
// histograms of buckets alone are completed.
func TestComplete(t *testing.T) {
	page := `pointsman_decisions_total{pool="a"} 1
pointsman_decision_seconds_bucket{proxy="nginx",le="+Inf"} 2
# HELP old text
pointsman_decision_seconds_sum{proxy="nginx"} 0.5
pointsman_decision_seconds_count{proxy="nginx"} 2
pointsman_decisions_total{pool="b"} 3
go_sched_latencies_seconds_bucket{le="1"} 1
go_sched_latencies_seconds_bucket{le="2"} 3
go_sched_latencies_seconds_bucket{le="+Inf"} 4
go_info_ext{GOOS="linux"} 1
go_gc_duration_seconds{quantile="1"} 2
go_gc_duration_seconds_count 1
other_total 5
other_count 6`
	want := `# HELP pointsman_decisions_total Requests for which the proxy asked for a decision.
# TYPE pointsman_decisions_total counter
pointsman_decisions_total{pool="a"} 1
pointsman_decisions_total{pool="b"} 3
# HELP pointsman_decision_seconds Time from the complete question to the complete answer, inside the agent.
# TYPE pointsman_decision_seconds histogram
pointsman_decision_seconds_bucket{proxy="nginx",le="+Inf"} 2
pointsman_decision_seconds_sum{proxy="nginx"} 0.5
pointsman_decision_seconds_count{proxy="nginx"} 2
# HELP go_sched_latencies_seconds Time that goroutines waited for a processor; the sum is estimated by the buckets.
# TYPE go_sched_latencies_seconds histogram
go_sched_latencies_seconds_bucket{le="1"} 1
go_sched_latencies_seconds_bucket{le="2"} 3
go_sched_latencies_seconds_bucket{le="+Inf"} 4
go_sched_latencies_seconds_sum 7
go_sched_latencies_seconds_count 4
# HELP go_gc_duration_seconds Pauses of garbage collections, in seconds.
# TYPE go_gc_duration_seconds summary
go_gc_duration_seconds{quantile="1"} 2
go_gc_duration_seconds_count 1
# TYPE other_total counter
other_total 5
# TYPE other_count gauge
other_count 6
`
	if got := string(Complete(nil, []byte(page))); got != want {
		t.Errorf("got\n%s", got)
	}
}

// A label's value may hold anything that is quoted.
func TestCompleteKeepsLabels(t *testing.T) {
	line := `pointsman_queued{pool="a b{} \" \\ #",band="x"} 1` + "\n"
	if got := string(Complete(nil, []byte(line))); !strings.HasSuffix(got, "gauge\n"+line) {
		t.Errorf("%s", got)
	}
}

func TestFamilies(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range append(Ours(), process...) {
		if seen[f.Name] || !strings.HasSuffix(f.Help, ".") || f.Type == "" || (f.Type == Counter) != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
}
