package decidertest

import "pointsman/decider"

// Request returns a new request of 100 prompt tokens, as changed.
func (p *Pool) Request(change ...func(*decider.Request)) *decider.Request {
	r := &decider.Request{ID: p.NewID(), Pool: p.Pool, Input: 100, Output: -1}
	for _, f := range change {
		f(r)
	}
	return r
}

// Send lets the pool decide one request, which is in flight from then on.
func (p *Pool) Send(change ...func(*decider.Request)) (decider.Decision, decider.ID) {
	var d decider.Decision
	r := p.Request(change...)
	p.Decide(r, &d)
	return d, r.ID
}

// SendTo lets the pool decide one request, and reports that the proxy has connected it to
// that replica, whatever the decision was.
func (p *Pool) SendTo(replica string, change ...func(*decider.Request)) decider.ID {
	_, id := p.Send(change...)
	p.Connected(id, []byte(replica))
	return id
}

// Serve reports the first token and the end of a request that the replica served.
func (p *Pool) Serve(id decider.ID, replica string) {
	p.FirstToken(id, []byte(replica))
	p.End(id, replica)
}

// End reports the end of a request that the replica served.
func (p *Pool) End(id decider.ID, replica string) {
	p.Finished(decider.Outcome{ID: id, Server: []byte(replica)})
}

// Served sends a request and serves it at once, where the pool sent it.
func (p *Pool) Served(change ...func(*decider.Request)) decider.Decision {
	d, id := p.Send(change...)
	p.Serve(id, d.Server)
	return d
}

// ServedBy sends a request and serves it at once on that replica.
func (p *Pool) ServedBy(replica string, change ...func(*decider.Request)) {
	_, id := p.Send(change...)
	p.Serve(id, replica)
}

// Burst sends n requests, none of which ends, and counts them by replica.
func (p *Pool) Burst(n int, change ...func(*decider.Request)) map[string]int {
	counts := map[string]int{}
	for range n {
		d, _ := p.Send(change...)
		counts[d.Server]++
	}
	return counts
}

// OneByOne sends n requests, each of which ends before the next one, and counts
// them by replica.
func (p *Pool) OneByOne(n int, change ...func(*decider.Request)) map[string]int {
	counts := map[string]int{}
	for range n {
		d, id := p.Send(change...)
		counts[d.Server]++
		p.End(id, d.Server)
	}
	return counts
}

// SetInFlight makes n the number of requests without a prompt that are in flight
// on a replica and that the proxy placed by itself. Requests sent by other means
// count besides.
func (p *Pool) SetInFlight(replica string, n int) {
	list := p.adopted[replica]
	for len(list) < n {
		id := p.NewID()
		p.Connected(id, []byte(replica))
		list = append(list, id)
	}
	for len(list) > n {
		p.Finished(decider.Outcome{ID: list[len(list)-1], End: decider.Denied})
		list = list[:len(list)-1]
	}
	p.adopted[replica] = list
}

// Terms are the terms of each replica in the explanation of a request, by
// replica and name.
func (p *Pool) Terms(change ...func(*decider.Request)) map[string]map[string]float64 {
	terms := map[string]map[string]float64{}
	for _, c := range p.Explain(p.Request(change...)).Candidates {
		terms[c.Replica] = c.Terms
	}
	return terms
}

// Replica is the state of one replica.
func (p *Pool) Replica(name string) decider.ReplicaStatus {
	for _, r := range p.Status().Replicas {
		if r.Name == name {
			return r
		}
	}
	return decider.ReplicaStatus{}
}
