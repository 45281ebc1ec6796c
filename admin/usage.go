package admin

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"

	"pointsman/decider/budget"
)

// writeBudgets writes the counts of tokens. Its labels are the names of keys, limits
// and models in the configuration.
func writeBudgets(w io.Writer, b *budget.Ledger) {
	s := b.Status()
	if s == nil {
		return
	}
	for _, l := range s.Limits {
		limit := fmt.Sprintf("{limit=%q}", l.Name)
		metrics.WriteCounterUint64(w, "pointsman_budget_refused_total"+limit, l.Refused)
		metrics.WriteGaugeUint64(w, "pointsman_budget_used_accounts"+limit, uint64(l.Accounts))
		metrics.WriteGaugeUint64(w, "pointsman_budget_exhausted_accounts"+limit, uint64(l.Exhausted))
	}
	metrics.WriteCounterUint64(w, "pointsman_budget_overflowed_total", s.Overflowed)
	byKey := map[string]*budget.Usage{}
	var order []*budget.Usage
	for _, u := range append([]budget.Usage{{Key: budget.Others}, {Key: budget.NoKey}}, b.Usage()...) {
		sum := byKey[u.Key]
		if sum == nil {
			sum = &budget.Usage{Key: u.Key}
			byKey[u.Key] = sum
			order = append(order, sum)
		}
		sum.Requests += u.Requests + u.Free // counters never go back
		sum.Refused += u.Refused
		sum.Input += u.Input + u.Returned
		sum.Returned += u.Returned
		sum.Output += u.Output
	}
	for _, u := range order {
		key := fmt.Sprintf("{key=%q}", u.Key)
		metrics.WriteCounterUint64(w, "pointsman_usage_requests_total"+key, u.Requests)
		metrics.WriteCounterUint64(w, "pointsman_usage_refused_total"+key, u.Refused)
		metrics.WriteCounterUint64(w, "pointsman_usage_input_tokens_total"+key, u.Input)
		metrics.WriteCounterUint64(w, "pointsman_usage_returned_tokens_total"+key, u.Returned)
		metrics.WriteCounterUint64(w, "pointsman_usage_output_tokens_total"+key, u.Output)
	}
}

// usage answers what was used since the start, by key and model, as CSV.
func (s *Server) usage(ctx *fasthttp.RequestCtx) {
	if !s.decider.Budgets.On() {
		ctx.Error("no tokens are counted: set budgets.keys or budgets.limits\n", fasthttp.StatusNotFound)
		return
	}
	ctx.SetContentType("text/csv; charset=utf-8")
	w := csv.NewWriter(ctx)
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	rows := [][]string{{"key", "tenant", "model", "requests", "refused", "free", "input_tokens", "output_tokens"}}
	for _, u := range s.decider.Budgets.Usage() {
		rows = append(rows, []string{u.Key, u.Tenant, u.Model, n(u.Requests), n(u.Refused), n(u.Free), n(u.Input), n(u.Output)})
	}
	_ = w.WriteAll(rows) // to memory
}
