package admin

import (
	"fmt"
	"io"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

// writeShadow writes the comparison of a pool in shadow.
func writeShadow(w io.Writer, pool string, c *decider.ShadowCounts) {
	name := func(metric, replica string) string {
		if replica == "" {
			return fmt.Sprintf("pointsman_shadow_%s_total{pool=%q}", metric, pool)
		}
		return fmt.Sprintf("pointsman_shadow_%s_total{pool=%q,replica=%q}", metric, pool, replica)
	}
	metrics.WriteCounterUint64(w, name("requests", ""), c.Requests)
	metrics.WriteCounterUint64(w, name("compared", ""), c.Compared)
	metrics.WriteCounterUint64(w, name("same_replica", ""), c.Same)
	metrics.WriteCounterUint64(w, name("sooner", ""), c.Sooner)
	metrics.WriteCounterUint64(w, name("prompt_tokens", ""), c.PromptTokens)
	metrics.WriteCounterUint64(w, name("cached_tokens", "chosen"), c.ChosenCached)
	metrics.WriteCounterUint64(w, name("cached_tokens", "served"), c.ServedCached)
	metrics.WriteCounterFloat64(w, name("ttft_seconds", "chosen"), c.ChosenTTFT)
	metrics.WriteCounterFloat64(w, name("ttft_seconds", "served"), c.ServedTTFT)
}
