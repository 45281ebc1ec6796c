package sim

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"time"
)

// Job is one sequence for an Engine. The fields above the line are set by the
// caller before Submit and not changed until the job has ended; a Job is used
// once.
type Job struct {
	// Blocks are keys of the sequence's blocks in order, each equal in two
	// jobs exactly when all tokens up to the end of that block are equal. They
	// may end within the prompt or reach into the output; blocks without a key
	// and a last block that is not full are never found again.
	Blocks []uint64
	// Input and Output are token counts, both at least 1.
	Input, Output int
	// Owner is whatever the caller wants to find again from an Event.
	Owner any

	// Cached is the number of prompt tokens found in the cache when the job
	// was first admitted; valid from its FirstToken event.
	Cached int

	state     jobState
	counted   bool // Cached is set
	cancelled bool // leaves at the end of the step
	admitted  uint64
	blocks    []int32
	twins     []int // of blocks, those that were another copy of a findable one
	done      int   // tokens computed by prefill
	target    int   // tokens that prefill must compute
	planned   int   // tokens of this step
	tokens    int   // output tokens at decode step joined
	joined    int   // decode step at which tokens was counted
	due       int   // decode step at which it ends or needs a block
	slot      int   // place in the decode heap
	place     int   // place in Engine.running
}

type jobState uint8

const (
	jobNew jobState = iota
	jobWaiting
	jobPrefill
	jobDecode
	jobEnded
)

// EventKind says what happened to a job.
type EventKind uint8

const (
	// FirstToken: the prompt is computed and the first output token is there.
	FirstToken EventKind = iota
	// Token: one more output token; only from an engine that tells each.
	Token
	// Preempted: the job lost its memory and waits to be computed again.
	Preempted
	// Finished: the job has all its output tokens and holds nothing any more.
	Finished
)

// String is the kind's name.
func (k EventKind) String() string {
	return [...]string{"first token", "token", "preempted", "finished"}[k]
}

// Event is something that happened to a job at the end of a step.
type Event struct {
	Kind EventKind
	Job  *Job
	At   time.Duration
}

// Stats is a snapshot of an engine. The counters grow for ever.
type Stats struct {
	Waiting, Running int
	UsedBlocks       int // pinned by running jobs
	StoredBlocks     int // findable, pinned or not
	TotalBlocks      int
	BlockSize        int // tokens

	QueryTokens      uint64 // prompt tokens looked up in the cache
	HitTokens        uint64 // of these found
	PromptTokens     uint64 // prompts whose first token is out
	GenerationTokens uint64
	Finished         uint64
	Cancelled        uint64
	Preemptions      uint64
	Steps            uint64
}

// KVUsage is the used share of the cache, 0 to 1.
func (s Stats) KVUsage() float64 { return float64(s.UsedBlocks) / float64(s.TotalBlocks) }

// EngineOptions size an Engine.
type EngineOptions struct {
	Profile     Profile
	BlockSize   int // tokens in a block of KV cache
	CacheTokens int // KV cache in tokens, rounded down to blocks
	// EachToken asks for a Token event for every token. Without it, steps that
	// only decode are taken many at once.
	EachToken bool
	// Stored, unless nil, is called when block i of a job becomes findable, and
	// Removed when the block of that key no longer is; both within Step, Submit
	// or Cancel.
	Stored  func(j *Job, i int)
	Removed func(key uint64)
}

// ErrTooLarge refuses a job that the whole cache could not hold.
var ErrTooLarge = errors.New("sim: job larger than the KV cache")

// Engine models one LLM engine with continuous batching. Time is what its
// caller says it is: Submit and Cancel take the present, Next tells when the
// step in progress ends, Step ends it. The caller ends every step that is due
// before it submits or cancels at a later time.
//
// An Engine is not safe for concurrent use, and equal calls give equal results.
type Engine struct {
	p         Profile
	blockSize int
	eachToken bool
	stored    func(j *Job, i int)

	cache    *cache
	waiting  *jobQueue
	running  []*Job     // all admitted, in no order
	prefills []*Job     // those in prefill, oldest first
	decodes  decodeHeap // those in decode
	growing  []*Job     // decoding, need a block before the next step
	leaving  []*Job     // cancelled within the step
	events   []Event
	spare    [][]int32 // block lists for the next jobs

	// The step in progress. While decoding only it stands for many.
	active     bool
	start, end time.Duration
	steps      int

	clock    int    // decode steps done, the time scale of Job.due
	context  int    // tokens that a decode step reads
	admitted uint64 // jobs admitted so far
	blocked  *Job   // the head of the queue when it did not fit
	changes  uint64 // cache.changes then
	stats    Stats
}

// NewEngine returns an idle engine with an empty cache.
func NewEngine(o EngineOptions) (*Engine, error) {
	if err := o.Profile.Validate(); err != nil {
		return nil, err
	}
	if o.BlockSize < 1 || o.CacheTokens < o.BlockSize {
		return nil, fmt.Errorf("sim: a cache of %d tokens in blocks of %d", o.CacheTokens, o.BlockSize)
	}
	n := o.CacheTokens / o.BlockSize
	if n >= math.MaxInt32 {
		return nil, fmt.Errorf("sim: a cache of %d blocks, want less than %d", n, math.MaxInt32)
	}
	return &Engine{
		p: o.Profile, blockSize: o.BlockSize, eachToken: o.EachToken,
		stored: o.Stored, cache: newCache(n, o.Removed), waiting: new(jobQueue),
	}, nil
}

// Follow calls stored and removed besides those that are called already.
func (e *Engine) Follow(stored func(j *Job, i int), removed func(key uint64)) {
	if before := e.stored; before != nil {
		after := stored
		stored = func(j *Job, i int) { before(j, i); after(j, i) }
	}
	if before := e.cache.removed; before != nil {
		after := removed
		removed = func(key uint64) { before(key); after(key) }
	}
	e.stored, e.cache.removed = stored, removed
}

// Holds reports whether the block of that key is findable.
func (e *Engine) Holds(key uint64) bool {
	_, ok := e.cache.table[key]
	return ok
}

// Submit queues a job at time now. It fails with ErrTooLarge, and for a job
// without input or output.
func (e *Engine) Submit(now time.Duration, j *Job) error {
	if j.Input < 1 || j.Output < 1 {
		return fmt.Errorf("sim: a job of %d input and %d output tokens", j.Input, j.Output)
	}
	if e.blocksFor(j.Input+j.Output) > e.cache.size() {
		return ErrTooLarge
	}
	j.state = jobWaiting
	e.waiting.pushBack(j)
	e.Wake(now)
	return nil
}

// Wake has the engine look at its queue at the next step, at once when idle.
func (e *Engine) Wake(now time.Duration) {
	if e.active {
		e.cut(now)
	} else {
		e.schedule(now)
	}
}

// Cancel ends a job at time now; no event about it follows. A running job
// holds its memory until the step in progress ends. A job that has ended, or
// was never submitted, is left alone.
func (e *Engine) Cancel(now time.Duration, j *Job) {
	switch {
	case j.state == jobWaiting:
		e.waiting.remove(j)
		j.state = jobEnded
		e.stats.Cancelled++
		e.blocked = nil
		e.cut(now)
	case (j.state == jobPrefill || j.state == jobDecode) && !j.cancelled:
		j.cancelled = true
		e.leaving = append(e.leaving, j)
		e.stats.Cancelled++
		e.cut(now)
	}
}

// Next tells when the step in progress ends, and false when the engine is idle.
func (e *Engine) Next() (time.Duration, bool) { return e.end, e.active }

// Step ends the step in progress, if it is due at now, and begins the next.
// The events are those of this one step, and belong to the engine until the
// next call.
func (e *Engine) Step(now time.Duration) []Event {
	e.events = e.events[:0]
	if !e.active || now < e.end {
		return nil
	}
	at := e.end
	for _, j := range e.leaving {
		e.drop(j)
	}
	e.leaving = e.leaving[:0]

	e.stats.Steps += uint64(e.steps)
	e.stats.GenerationTokens += uint64(e.steps * len(e.decodes))
	e.clock += e.steps
	e.context += e.steps * len(e.decodes)
	if e.eachToken {
		for _, j := range e.decodes {
			e.tell(Token, j)
		}
	}
	e.advancePrefills()
	e.settleDecodes()
	e.schedule(at)
	return e.events
}

// Stats returns the counters as of the last step that ended.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Waiting, s.Running = e.waiting.len(), len(e.running)
	s.TotalBlocks, s.BlockSize = e.cache.size(), e.blockSize
	s.UsedBlocks, s.StoredBlocks = e.cache.size()-e.cache.free, len(e.cache.table)
	return s
}

// Jobs calls f for each running and each waiting job.
func (e *Engine) Jobs(f func(j *Job, running bool)) {
	for _, j := range e.running {
		f(j, true)
	}
	e.waiting.each(func(j *Job) { f(j, false) })
}

func (e *Engine) tell(kind EventKind, j *Job) {
	e.events = append(e.events, Event{Kind: kind, Job: j, At: e.end})
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.blockSize - 1) / e.blockSize }

// produced is the number of output tokens of a job.
func (e *Engine) produced(j *Job) int {
	if j.state == jobDecode {
		return j.tokens + e.clock - j.joined
	}
	return j.tokens
}

// decodeTime is the time in nanoseconds of the first n decode steps from now
// on: each reads the context, which grows by one token a job and step.
func (e *Engine) decodeTime(n int) float64 {
	grown := float64(len(e.decodes)) * float64(n) * float64(n-1) / 2
	return float64(n)*float64(e.p.Base) + e.p.ContextRead*(float64(n)*float64(e.context)+grown)
}

// cut shortens a run of decode steps to the one that is in progress at now. One
// that ends just now is over, like any other that the caller has to end first.
func (e *Engine) cut(now time.Duration) {
	if !e.active || e.steps == 1 {
		return
	}
	n := 1 + sort.Search(e.steps-1, func(i int) bool {
		return e.start+time.Duration(e.decodeTime(i+1)) > now
	})
	e.steps, e.end = n, e.start+time.Duration(e.decodeTime(n))
}

// Generated is the number of output tokens of a job that has ended.
func (j *Job) Generated() int { return j.tokens }
