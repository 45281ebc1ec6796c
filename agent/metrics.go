package agent

import (
	"github.com/VictoriaMetrics/metrics"

	"pointsman/spoa"
)

// exportSPOE exports the counters of the SPOE server as metrics.
func exportSPOE(set *metrics.Set, s *spoa.Server) {
	for name, value := range map[string]func(spoa.Stats) float64{
		"pointsman_spoe_connections":             func(s spoa.Stats) float64 { return float64(s.Open) },
		"pointsman_spoe_accepted_total":          func(s spoa.Stats) float64 { return float64(s.Accepted) },
		"pointsman_spoe_refused_total":           func(s spoa.Stats) float64 { return float64(s.Refused) },
		"pointsman_spoe_frames_total":            func(s spoa.Stats) float64 { return float64(s.Frames) },
		"pointsman_spoe_messages_total":          func(s spoa.Stats) float64 { return float64(s.Messages) },
		"pointsman_spoe_malformed_total":         func(s spoa.Stats) float64 { return float64(s.Malformed) },
		"pointsman_spoe_panics_total":            func(s spoa.Stats) float64 { return float64(s.Panics) },
		"pointsman_spoe_dropped_variables_total": func(s spoa.Stats) float64 { return float64(s.Dropped) },
	} {
		set.NewGauge(name, func() float64 { return value(s.Stats()) })
	}
}
