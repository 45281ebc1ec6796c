package sim

// Share gives engines one cache, as large as theirs together, and one queue,
// from which whichever has room in a step takes the head. The engines must be
// new and of one block size. A caller submits to any of them and then wakes
// all.
func Share(fleet []*Engine) {
	blocks := 0
	for _, e := range fleet {
		blocks += e.cache.size()
	}
	c, q := newCache(blocks, nil), new(jobQueue)
	for _, e := range fleet {
		e.cache, e.waiting = c, q
	}
}
