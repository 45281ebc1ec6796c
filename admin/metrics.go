package admin

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/queue"
	"pointsman/intake"
)

// writeBuild writes the version of the build.
func writeBuild(w io.Writer, version string) {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	metrics.WriteGaugeUint64(w, fmt.Sprintf("pointsman_build_info{version=%q,revision=%q,goversion=%q}", version, revision, runtime.Version()), 1)
}

// writeDecider writes the decider's counts. Its labels are only names of pools, replicas
// and policies, which the configuration bounds.
func writeDecider(w io.Writer, in *intake.Intake) {
	s := in.Stats()
	metrics.WriteCounterUint64(w, "pointsman_model_unknown_total", s.ModelUnknown)
	metrics.WriteCounterUint64(w, "pointsman_model_unseen_total", s.ModelUnseen)
	for _, p := range in.Decider().Pools() {
		writePool(w, p.Status())
		writeAutoscale(w, p.Autoscale())
	}
}

// writeAutoscale writes the input of autoscalers.
func writeAutoscale(w io.Writer, a decider.Autoscale) {
	gauge := func(name string, v float64) {
		metrics.WriteGaugeFloat64(w, fmt.Sprintf("pointsman_%s{pool=%q}", name, a.Pool), v)
	}
	gauge("demand_tokens_per_second", a.Demand)
	gauge("capacity_tokens_per_second", a.Capacity)
	gauge("queue_requests", float64(a.QueueRequests))
	gauge("queue_tokens", float64(a.QueueTokens))
	gauge("queue_seconds", a.QueueSeconds)
	gauge("kv_usage", a.KVUsage)
	gauge("saturation", a.Saturation)
	gauge("replicas", float64(a.Replicas))
	gauge("recommended_replicas", float64(a.Recommended))
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
	count("policy_panics_total", p.Stats.PolicyPanics)
	count("membership_changes_total", p.Stats.MembershipChanges)
	count("prompt_tokens_total", p.PromptTokens)
	count("prompt_cached_tokens_total", p.CachedTokens)
	for k, tier := range decider.SlowTiers() {
		metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_prompt_offloaded_tokens_total{pool=%q,tier=%q}", p.Name, tier), p.Stats.SlowTokens[k])
	}
	count("prompt_achievable_cached_tokens_total", p.Stats.AchievableTokens)
	if h := p.HitRatio; h != nil {
		metrics.WriteGaugeFloat64(w, "pointsman_hit_ratio"+pool, h.Expected)
		metrics.WriteGaugeFloat64(w, "pointsman_achievable_hit_ratio"+pool, h.Achievable)
	}
	metrics.WriteGaugeFloat64(w, "pointsman_bytes_per_token"+pool, p.BytesPerToken)
	metrics.WriteGaugeUint64(w, "pointsman_reservations"+pool, uint64(p.Reservations))
	for end, n := range p.Stats.Outcomes {
		metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_outcomes_total{pool=%q,end=%q}", p.Name, decider.End(end)), n)
	}
	for _, c := range p.PolicyStats {
		metrics.WriteCounterUint64(w, "pointsman_"+withPool(c.Name, p.Name), c.Value)
	}
	if p.Shadow != nil {
		writeShadow(w, p.Name, &p.Shadow.Counts)
	}
	if p.Admission != nil {
		writeAdmission(w, p.Name, p.Admission)
	}
	if l := p.Legs; l != nil {
		pool := fmt.Sprintf("{pool=%q}", p.Name)
		metrics.WriteCounterUint64(w, "pointsman_prefill_legs_total"+pool, l.Legs)
		metrics.WriteCounterUint64(w, "pointsman_prefill_leg_tokens_total"+pool, l.Tokens)
		metrics.WriteCounterUint64(w, "pointsman_prefill_local_total"+pool, l.Local)
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

// writeAdmission writes the queue, by band and class of tenants; both are names in the
// configuration.
func writeAdmission(w io.Writer, pool string, a *decider.AdmissionStatus) {
	for _, b := range a.Bands {
		band := fmt.Sprintf("{pool=%q,band=%q}", pool, b.Name)
		metrics.WriteGaugeUint64(w, "pointsman_queued"+band, uint64(b.Queued))
		metrics.WriteGaugeUint64(w, "pointsman_queued_bytes"+band, uint64(b.Bytes))
		metrics.WriteGaugeUint64(w, "pointsman_queued_tokens"+band, uint64(b.Tokens))
		for class, c := range b.Counts {
			labels := fmt.Sprintf("pool=%q,band=%q,tenants=%q", pool, b.Name, class)
			count := func(name string, v uint64) {
				metrics.WriteCounterUint64(w, "pointsman_"+name+"{"+labels+"}", v)
			}
			count("held_total", c.Held)
			count("admitted_total", c.Admitted)
			count("spilled_total", c.Spilled)
			count("client_gone_while_held_total", c.Gone)
			for why, n := range c.Refused {
				metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_shed_total{%s,reason=%q}", labels, why), n)
			}
			sum := uint64(0)
			for i, n := range c.Waits {
				sum += n
				le := "+Inf"
				if bounds := queue.WaitBounds(); i < len(bounds) {
					le = fmt.Sprint(bounds[i])
				}
				metrics.WriteCounterUint64(w, fmt.Sprintf("pointsman_wait_seconds_bucket{%s,le=%q}", labels, le), sum)
			}
			metrics.WriteCounterFloat64(w, "pointsman_wait_seconds_sum{"+labels+"}", c.WaitSeconds)
			count("wait_seconds_count", sum)
		}
	}
	metrics.WriteGaugeUint64(w, fmt.Sprintf("pointsman_saturated_replicas{pool=%q}", pool), uint64(a.Saturated))
	metrics.WriteGaugeFloat64(w, fmt.Sprintf("pointsman_expected_wait_seconds{pool=%q}", pool), a.Wait)
}

// withPool adds the pool's label to a metric's name, which may have others.
func withPool(name, pool string) string {
	label := fmt.Sprintf("pool=%q", pool)
	if base, rest, ok := strings.Cut(name, "{"); ok {
		return base + "{" + label + "," + rest
	}
	return name + "{" + label + "}"
}
