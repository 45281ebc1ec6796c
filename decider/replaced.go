package decider

// Replaced reports that another engine serves at the replica's address now, of which
// nothing is known yet.
func (e Engine) Replaced() {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r != nil {
		replaced(p, r)
	}
}

// ModelsUnknown reports that the engine has restarted and does not list its models: what
// the list said before no longer counts.
func (d *Decider) ModelsUnknown(p *Pool, replica string) {
	if p.Engine(replica).forgetModels() && d.AdaptersChanged != nil {
		d.AdaptersChanged()
	}
}

// forgetModels forgets the models that the engine listed, and reports whether adapters were
// among them.
func (e Engine) forgetModels() bool {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return false
	}
	listed := len(r.lists) > 0
	r.lists, r.contextTokens = nil, 0
	p.updateBounds(&p.config, p.replicas)
	return listed
}

// moveTo sets the address of r. Another address means another engine. The caller holds the
// lock.
func moveTo(p *Pool, r *Replica, address string) {
	if r.address != "" && address != "" && r.address != address {
		replaced(p, r)
	}
	r.address = address
}

// replaced forgets what the engine of r has reported: its cache, its sizes, its models. Its
// learned speed stays until requests show another one. The caller holds the lock.
func replaced(p *Pool, r *Replica) {
	p.restarted(r)
	r.firstTokens, r.promptWindow = firstTokens{}, promptWindow{}
	r.signals, r.atSignals = Signals{}, localLoad{}
	r.lists, r.contextTokens = nil, 0
	r.slotsReported, r.adapters.slots = 0, p.config.LoRASlots
	r.blockTokens, r.blocksSeen = 0, false
	r.cacheTokens = p.config.CacheTokens
	for _, c := range p.config.Replicas {
		if c.Name == r.name && c.CacheTokens > 0 {
			r.cacheTokens = c.CacheTokens
		}
	}
	p.caches.resize(r)
	p.updateBounds(&p.config, p.replicas)
	chooseBlockTokens(p)
}
