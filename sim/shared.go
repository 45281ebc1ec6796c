package sim

// Share gives the engines one common cache, as large as all of theirs, and one
// common queue: an engine with capacity in a step takes the head of the queue.
// The engines must be new and have the same block size. The caller submits to
// any of them and then wakes all.
func Share(engines []*Engine) {
	blocks, kept := 0, 0
	for _, e := range engines {
		blocks += e.cache.size()
		if e.host != nil {
			kept += e.host.size
		}
	}
	c, q := newCache(blocks, nil), new(jobQueue)
	var host *hostCache
	if kept > 0 {
		host = newHostCache(kept)
		c.evicted = host.keep
	}
	for _, e := range engines {
		e.cache, e.waiting, e.host = c, q, host
	}
}
