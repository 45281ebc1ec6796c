package intake

import (
	"net/http"

	"pointsman/decider"
	"pointsman/decider/budget"
)

// charge charges the client of r for its prompt. When it reports false, r.Decision
// refuses the request.
func (i *Intake) charge(r *Request, in *Input) bool {
	b := i.decider.Budgets
	if !b.On() {
		return true
	}
	// A request that is asked about again, or left to the proxy, is not refused.
	forced := len(in.Exclude) > 0 || r.Pool.Shadows(&r.Request)
	charge, v := b.Charge(i.client(in), r.Model, r.billed(), forced)
	r.Charge, r.Budget = charge, v.Left()
	if !v.Refused {
		return true
	}
	r.Decision = decider.Decision{Status: http.StatusTooManyRequests, Reason: v.Reason, Retry: v.Retry, Why: "budget"}
	return false
}

// client identifies the sender of the request by its key. Of several keys, one with a name
// counts.
func (i *Intake) client(in *Input) (first budget.Client) {
	b, headers := i.decider.Budgets, i.table.Load().budgetKeys
	for k := range headers.Len() {
		value, _ := headers.FindOne(k, in.Headers)
		if len(value) == 0 {
			continue
		}
		c := b.Identify(withoutBearer(value))
		if c.Named() {
			return c
		}
		if first == (budget.Client{}) {
			first = c
		}
	}
	return first
}

// billed is how many tokens the prompt counts for: its estimated length. If a body is cut
// within an image, the rest may be text and counts as such.
func (r *Request) billed() int {
	tokens := r.Input
	if r.Cut && r.body.CutMedium && !r.body.Opaque && r.computes() {
		unseen := max(r.Bytes-r.body.Scanned, 0)
		tokens = min(tokens+int(float64(unseen)/r.Pool.BytesPerToken()), r.Pool.Bounds().Context)
	}
	return tokens
}

// Budget returns the state of the limits for a request that was read; it charges nothing.
func (i *Intake) Budget(r *Request, in *Input) budget.Verdict {
	if b := i.decider.Budgets; b.On() {
		return b.Look(i.client(in), r.Model, r.billed())
	}
	return budget.Verdict{}
}
