package admin

import (
	"fmt"
	"io"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

// writeDecider writes what the decider counts. Its labels are the names of
// pools, replicas and policies alone, which the configuration bounds.
func writeDecider(w io.Writer, d *decider.Decider) {
	s := d.Stats()
	metrics.WriteCounterUint64(w, "pointsman_model_unknown_total", s.ModelUnknown)
	metrics.WriteCounterUint64(w, "pointsman_model_unseen_total", s.ModelUnseen)
	for _, p := range d.Pools() {
		writePool(w, p.Status())
	}
}

func writePool(w io.Writer, p decider.PoolStatus) {
	pool := fmt.Sprintf("{pool=%q}", p.Name)
	count := func(name string, v uint64) { metrics.WriteCounterUint64(w, "pointsman_"+name+pool, v) }
	count("decisions_total", p.Stats.Decisions)
	count("undecided_total", p.Stats.Undecided)
	count("client_gone_before_decision_total", p.Stats.ClientGone)
	count("outcomes_unreserved_total", p.Stats.Unreserved)
	count("reservations_adopted_total", p.Stats.Adopted)
	count("reservations_expired_total", p.Stats.Expired)
	count("reservations_replaced_total", p.Stats.Replaced)
	count("server_mismatch_total", p.Stats.Mismatches)
	count("membership_changes_total", p.Stats.MembershipChanges)
	count("prompt_tokens_total", p.PromptTokens)
	count("prompt_cached_tokens_total", p.CachedTokens)
	metrics.WriteGaugeFloat64(w, "pointsman_bytes_per_token"+pool, p.BytesPerToken)
	metrics.WriteGaugeUint64(w, "pointsman_reservations"+pool, uint64(p.Reservations))
	for end, n := range p.Stats.Outcomes {
		metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_outcomes_total{pool=%q,end=%q}", p.Name, decider.End(end)), n)
	}
	for _, c := range p.PolicyStats {
		metrics.WriteCounterUint64(w, "pointsman_"+withPool(c.Name, p.Name), c.Value)
	}
	for _, r := range p.Replicas {
		labels := fmt.Sprintf("{pool=%q,replica=%q}", p.Name, r.Name)
		gauge := func(name string, v int) {
			metrics.WriteGaugeUint64(w, "pointsman_replica_"+name+labels, uint64(max(v, 0)))
		}
		gauge("in_flight", r.InFlight)
		gauge("waiting", r.Waiting)
		gauge("tokens", r.Tokens)
		gauge("weight", r.Weight)
		up := 0
		if r.State != "down" && r.State != "draining" {
			up = 1
		}
		gauge("up", up)
		gauge("cache_tokens", r.CacheTokens)
		gauge("prefill_tokens_per_second", int(r.PrefillSpeed))
		if r.SignalAge >= 0 {
			metrics.WriteGaugeFloat64(w, "pointsman_replica_signal_age_seconds"+labels, r.SignalAge)
			metrics.WriteCounterUint64(w, "pointsman_replica_engine_prompt_tokens_total"+labels, r.PromptTokens)
			metrics.WriteCounterUint64(w, "pointsman_replica_engine_prefix_query_tokens_total"+labels, r.QueryTokens)
			metrics.WriteCounterUint64(w, "pointsman_replica_engine_prefix_hit_tokens_total"+labels, r.HitTokens)
		}
		metrics.WriteCounterUint64(w, "pointsman_replica_chosen_total"+labels, r.Chosen)
		metrics.WriteCounterUint64(w, "pointsman_replica_served_total"+labels, r.Served)
		metrics.WriteCounterUint64(w, "pointsman_replica_failed_total"+labels, r.Failed)
	}
}

// withPool adds the pool's label to a metric's name, which may have others.
func withPool(name, pool string) string {
	label := fmt.Sprintf("pool=%q", pool)
	if base, rest, ok := strings.Cut(name, "{"); ok {
		return base + "{" + label + "," + rest
	}
	return name + "{" + label + "}"
}
