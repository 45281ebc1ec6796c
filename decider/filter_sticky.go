package decider

// lastOfSession keeps the replica that served the session last, whatever
// policy put it there, so that its KV cache of the conversation is used again.
func (p *Pool) lastOfSession(r *Request, v *View, dst []int) []int {
	last := p.sessions.last(r)
	if last == nil {
		return dst
	}
	return p.pick(v, dst, func(c *Replica) bool { return c == last })
}
