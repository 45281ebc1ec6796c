package sim

import (
	"container/heap"
	"slices"
	"time"
)

// advancePrefills counts the prompt tokens of the step that ends. A complete
// prompt yields a token in the same step.
func (e *Engine) advancePrefills() {
	left := e.prefills[:0]
	for _, j := range e.prefills {
		before := j.done / e.blockSize
		j.done += j.planned
		j.planned = 0
		e.store(j, before, j.done/e.blockSize)
		if j.done < j.target {
			left = append(left, j)
			continue
		}
		kind := Token
		if j.tokens == 0 {
			kind = FirstToken
			e.stats.PromptTokens += uint64(j.Input)
		}
		j.tokens++
		e.stats.GenerationTokens++
		if kind == FirstToken || e.eachToken {
			e.emit(kind, j)
		}
		j.state, j.joined = jobDecode, e.clock
		e.context += j.Input + j.tokens
		e.setDue(j)
		heap.Push(&e.decodes, j)
	}
	clear(e.prefills[len(left):])
	e.prefills = left
}

// setDue computes the decode step at which the job has all its tokens or needs
// another block. The step after token n writes at position Input+n.
func (e *Engine) setDue(j *Job) {
	capacity := len(j.blocks)*e.blockSize - j.Input + 1
	j.due = j.joined + min(j.Output, capacity) - j.tokens
}

// advanceDecodes ends the complete jobs and collects those that need a block
// before the next step.
func (e *Engine) advanceDecodes() {
	for len(e.decodes) > 0 && e.decodes[0].due <= e.clock {
		j := e.decodes[0]
		if n := e.produced(j); n < j.Output {
			// Out of reach of this loop until grow sets it again.
			j.due = int(^uint(0) >> 1)
			heap.Fix(&e.decodes, 0)
			e.growing = append(e.growing, j)
			continue
		}
		e.store(j, j.target/e.blockSize, (j.Input+j.Output-1)/e.blockSize)
		e.release(j)
		e.stats.Finished++
		e.emit(Finished, j)
	}
}

// store caches the job's blocks from..to, as far as they have keys. Duplicates
// are cached first if the other copy is gone: a block is never cached without
// all blocks before it.
func (e *Engine) store(j *Job, from, to int) {
	if from >= min(to, len(j.Blocks)) {
		return
	}
	for _, i := range j.duplicates {
		e.storeBlock(j, i)
	}
	for i := from; i < min(to, len(j.Blocks)); i++ {
		if !e.storeBlock(j, i) {
			j.duplicates = append(j.duplicates, i)
		}
	}
}

// storeBlock caches the job's block i and reports whether it is cached now; it
// is not if another block has the same key.
func (e *Engine) storeBlock(j *Job, i int) bool {
	b := j.blocks[i]
	if e.cache.store(b, j.Blocks[i]) && e.stored != nil {
		e.stored(j, i)
	}
	return e.cache.blocks[b].keyed
}

// release removes an admitted job from the engine.
func (e *Engine) release(j *Job) {
	if j.state == jobDecode {
		e.context -= j.Input + e.produced(j)
		heap.Remove(&e.decodes, j.slot)
	} else {
		e.loaded(j)
		i := slices.Index(e.prefills, j)
		e.prefills = slices.Delete(e.prefills, i, i+1)
	}
	j.tokens = e.produced(j)
	j.state = jobEnded
	last := len(e.running) - 1
	e.running[j.place] = e.running[last]
	e.running[j.place].place = j.place
	e.running[last] = nil
	e.running = e.running[:last]
	// The deepest block first, so that it is evicted before its prefix.
	for i := len(j.blocks) - 1; i >= 0; i-- {
		e.cache.release(j.blocks[i])
	}
	e.spare = append(e.spare, j.blocks[:0])
	j.blocks, j.duplicates = nil, nil
}

// schedule plans the step that begins at time at.
func (e *Engine) schedule(at time.Duration) {
	if e.pending != nil {
		e.p, e.pending = *e.pending, nil
	}
	e.endLoads(at)
	preempted := e.grow()
	budget := e.p.Chunk - len(e.decodes)
	linear, attention := 0.0, 0.0
	plan := func(j *Job) {
		j.planned = min(budget, j.target-j.done)
		budget -= j.planned
		l, a := e.p.prefill(j.done, j.done+j.planned)
		linear, attention = linear+l, attention+a
	}
	for _, j := range e.prefills {
		if budget == 0 {
			break
		}
		if j.loading == 0 {
			plan(j)
		}
	}
	for !preempted && budget > 0 && e.admit(at) {
		if j := e.prefills[len(e.prefills)-1]; j.loading == 0 {
			plan(j)
		}
	}

	e.start, e.end, e.steps, e.active, e.copying = at, at, 1, len(e.running) > 0, false
	switch {
	case !e.active:
	case e.loading == len(e.running):
		e.end, e.copying = e.nextLoad(), true
	case len(e.prefills) > e.loading:
		base := max(linear, float64(e.p.Base))
		e.end += time.Duration(base + attention + e.p.ContextRead*float64(e.context))
	default:
		// A job that was not admitted because of a preemption may fit next time.
		if !e.eachToken && !preempted {
			e.steps = e.decodes[0].due - e.clock
		}
		e.end += time.Duration(e.decodeTime(e.steps))
		if e.loading > 0 {
			e.cut(e.nextLoad() - 1)
		}
	}
}

// grow allocates a block for each decoding job that has filled its last one,
// oldest first. If none is free, it preempts the youngest running job and
// returns true.
func (e *Engine) grow() (preempted bool) {
	slices.SortFunc(e.growing, func(a, b *Job) int {
		if a.admitted < b.admitted {
			return -1
		}
		return 1
	})
	for _, j := range e.growing {
		for j.state == jobDecode && e.cache.free == 0 {
			e.preempt()
			preempted = true
		}
		if j.state != jobDecode {
			continue
		}
		n := len(j.blocks)
		e.store(j, n-1, n)
		j.blocks = append(j.blocks, e.cache.allocate())
		e.setDue(j)
		heap.Fix(&e.decodes, j.slot)
	}
	e.growing = e.growing[:0]
	return preempted
}

// preempt returns the youngest running job to the head of the queue.
func (e *Engine) preempt() {
	j := e.running[0]
	for _, other := range e.running {
		if other.admitted > j.admitted {
			j = other
		}
	}
	e.release(j)
	j.state = jobWaiting
	e.waiting.pushFront(j)
	e.stats.Preemptions++
	e.emit(Preempted, j)
}

// mayAdmit reports whether there is a head of the queue, a free sequence slot, and no
// reason to know that the head does not fit.
func (e *Engine) mayAdmit() bool {
	return e.waiting.len() > 0 && len(e.running) < e.p.MaxRunning && (e.blocked != e.waiting.front() || e.changes != e.cache.changes)
}

// admit moves the head of the queue to prefill if there is one, a sequence slot
// is free, and all blocks of its prompt fit.
func (e *Engine) admit(at time.Duration) bool {
	if !e.mayAdmit() {
		return false
	}
	j := e.waiting.front()
	// Tokens generated before a preemption are recomputed like a prompt.
	target := j.Input + j.tokens
	// The last token is always computed: its result is the first output.
	prompt := j.Blocks[:min(len(j.Blocks), (target-1)/e.blockSize)]
	hits, free := e.cache.matchPrefix(prompt)
	need := e.blocksFor(target)
	if need-hits+free > e.cache.free {
		e.blocked, e.changes = j, e.cache.changes
		return false
	}
	e.blocked = nil
	e.waiting.popFront()
	if n := len(e.spare); n > 0 {
		j.blocks, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	for i := range hits {
		b := e.cache.table[j.Blocks[i]]
		e.cache.pin(b)
		j.blocks = append(j.blocks, b)
	}
	loads := 0
	if e.host != nil && (j.counted || !j.Received) {
		loads = e.host.match(prompt[hits:])
	}
	for range need - hits {
		j.blocks = append(j.blocks, e.cache.allocate())
	}
	j.target, j.done = target, (hits+loads)*e.blockSize
	if loads > 0 {
		e.load(j, hits, loads, at)
	}
	if j.Received && !j.counted {
		j.counted, j.done = true, target-1
		e.store(j, hits, j.done/e.blockSize)
	}
	if !j.counted {
		j.counted, j.Cached = true, min(j.done, j.Input)
		e.stats.QueryTokens += uint64(j.Input)
		e.stats.HitTokens += uint64(j.Cached)
		e.stats.LoadedTokens += uint64(max(0, j.Cached-hits*e.blockSize))
	}
	e.admitted++
	j.admitted = e.admitted
	j.state, j.place = jobPrefill, len(e.running)
	e.running = append(e.running, j)
	e.prefills = append(e.prefills, j)
	return true
}
