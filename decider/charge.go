package decider

// settle settles the charge for the request of v, by how it ended.
func settle(p *Pool, v *reservation, o *Outcome) {
	if !v.request.Charge.Made() {
		return
	}
	p.budgets.Settle(&v.request.Charge, p.answers.tokens(&v.request, o), o.free())
}

// free reports whether no engine has begun to compute the prompt, as far as is known.
func (o *Outcome) free() bool {
	return o.End == Refused || o.End == Denied || o.Status >= 400 && o.Status < 500
}

// refund reverses the charge for r, which reaches no replica.
func refund(p *Pool, r *Request) {
	if r.Charge.Made() {
		p.budgets.Settle(&r.Charge, 0, true)
	}
}
