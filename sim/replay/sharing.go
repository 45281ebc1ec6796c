package replay

import "pointsman/decider"

// sharePlacement lets the other agents reserve for f what its own agent did,
// after the sharing delay.
func (s *simulation) sharePlacement(f *flight) {
	s.toOthers(event{at: s.now + s.o.Share, kind: eventPlaced, flight: f})
}

// toOthers schedules an event for every agent but the one that decided, if they
// share.
func (s *simulation) toOthers(e event) {
	if s.o.Share <= 0 || e.flight.agent == nil {
		return
	}
	for _, a := range s.agents {
		if a != e.flight.agent {
			e.agent = a
			s.events.push(e)
		}
	}
}

// placed reserves for f in the pool of another agent.
func (s *simulation) placed(a *agent, f *flight) {
	r := f.request
	placed := decider.Request{
		ID: f.id, Pool: a.pool, Session: s.session(r), HasSession: r.HasSession,
		Input: f.input, Output: s.maxTokens(r), Blocks: r.Visible, Stream: r.Stream, Cut: r.Truncated,
	}
	placed.Placed(s.names[f.replica])
}
