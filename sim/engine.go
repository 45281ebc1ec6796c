package sim

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"time"
)

// Job is one sequence for an Engine. The caller sets Blocks, Input, Output and
// Owner before Submit and does not change them until the job has ended. A Job is
// used once.
type Job struct {
	// Blocks are the keys of the sequence's blocks in order. The keys of two
	// jobs are equal exactly when all tokens up to the end of that block are
	// equal. They may end within the prompt or extend into the output. Blocks
	// without a key and a partial last block are never reused.
	Blocks []uint64
	// Input and Output are token counts, both at least 1.
	Input, Output int
	// Received means that another engine has computed the prompt, except for its last
	// token, and that its blocks came with the job.
	Received bool
	// Owner is the caller's; an Event leads back to it.
	Owner any

	// Cached is the number of prompt tokens found in the cache when the job
	// was first admitted. It is valid from the FirstToken event.
	Cached int

	state      jobState
	counted    bool // Cached is set
	cancelled  bool // ends with the current step
	admitted   uint64
	blocks     []int32
	duplicates []int         // indexes of blocks whose content another block has cached
	done       int           // tokens computed by prefill
	target     int           // tokens that prefill must compute
	planned    int           // tokens of this step
	tokens     int           // output tokens at decode step joined
	joined     int           // decode step at which tokens was counted
	due        int           // decode step at which it ends or needs a block
	hits       int           // blocks found on the GPU,
	loading    int           // those after them that are being copied there
	ready      time.Duration // until then
	slot       int           // index in Engine.decodes
	place      int           // index in Engine.running
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
	// FirstToken means that the prompt is computed and the first output token exists.
	FirstToken EventKind = iota
	// Token means one more output token; only with EngineOptions.EachToken.
	Token
	// Preempted means that the job lost its blocks and waits to be computed again.
	Preempted
	// Finished means that the job has all its output tokens and holds no blocks.
	Finished
)

// String returns the kind's name.
func (k EventKind) String() string {
	return [...]string{"first token", "token", "preempted", "finished"}[k]
}

// Event is something that happened to a job at the end of a step.
type Event struct {
	Kind EventKind
	Job  *Job
	At   time.Duration
}

// Stats is a snapshot of an engine. Counters only grow.
type Stats struct {
	Waiting, Running int
	UsedBlocks       int // pinned by running jobs
	CachedBlocks     int // pinned or not
	TotalBlocks      int
	BlockSize        int // tokens

	QueryTokens      uint64 // prompt tokens looked up in the cache
	HitTokens        uint64 // of these, found
	LoadedTokens     uint64 // of these, in the memory of the host
	PromptTokens     uint64 // of prompts that have their first token
	GenerationTokens uint64
	Finished         uint64
	Cancelled        uint64
	Preemptions      uint64
	Steps            uint64
}

// KVUsage returns the used share of the KV cache, 0 to 1.
func (s Stats) KVUsage() float64 { return float64(s.UsedBlocks) / float64(s.TotalBlocks) }

// EngineOptions configure an Engine.
type EngineOptions struct {
	Profile     Profile
	BlockSize   int // tokens per block of KV cache
	CacheTokens int // KV cache in tokens, rounded down to blocks
	// CPUCacheTokens is how many evicted tokens the memory of the host keeps; 0 = none.
	// They are copied back at TransferSpeed tokens a second, while others are computed. 0 =
	// DefaultTransferSpeed.
	CPUCacheTokens int
	TransferSpeed  float64
	// EachToken requests a Token event for every token. Without it, many steps
	// that only decode are simulated as one.
	EachToken bool
	// Stored, unless nil, is called when block i of a job is cached, and Removed
	// when the block of that key is evicted. Both are called within Step, Submit
	// or Cancel.
	Stored  func(j *Job, i int)
	Removed func(key uint64)
}

// DefaultTransferSpeed is how many tokens a second come back from the memory of the host.
const DefaultTransferSpeed = 100_000

// ErrTooLarge is returned for a job that does not fit into the whole cache.
var ErrTooLarge = errors.New("sim: job larger than the KV cache")

// Engine models one LLM engine with continuous batching, chunked prefill and a
// prefix cache. The caller provides the time: Submit and Cancel take the current
// time, Next returns when the step in progress ends, and Step ends it. The
// caller must end every step that is due before it submits or cancels at a later
// time.
//
// An Engine is not safe for concurrent use. Equal calls give equal results.
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
	spare    [][]int32 // block lists to reuse

	host          *hostCache // nil = none
	transferSpeed float64
	linkFree      time.Duration // when what is copied to the GPU has come
	loading       int           // jobs that wait for it
	copying       bool          // the step in progress is for nothing else

	pending *Profile // takes effect with the next step

	// The step in progress. Without prefill it stands for several steps.
	active     bool
	start, end time.Duration
	steps      int

	clock    int    // decode steps done, the unit of Job.due
	context  int    // tokens that a decode step reads
	admitted uint64 // jobs admitted so far
	blocked  *Job   // the head of the queue, if it did not fit
	changes  uint64 // value of cache.changes then
	stats    Stats
}

// NewEngine returns an idle engine with an empty cache.
func NewEngine(o EngineOptions) (*Engine, error) {
	if err := o.Profile.Validate(); err != nil {
		return nil, err
	}
	if o.BlockSize < 1 || o.CacheTokens < o.BlockSize {
		return nil, fmt.Errorf("sim: a cache of %d tokens in blocks of %d, want at least one block", o.CacheTokens, o.BlockSize)
	}
	n := o.CacheTokens / o.BlockSize
	if n >= math.MaxInt32 {
		return nil, fmt.Errorf("sim: a cache of %d blocks, want less than %d", n, math.MaxInt32)
	}
	e := &Engine{
		p: o.Profile, blockSize: o.BlockSize, eachToken: o.EachToken,
		stored: o.Stored, cache: newCache(n, o.Removed), waiting: new(jobQueue),
		transferSpeed: o.TransferSpeed,
	}
	if e.transferSpeed == 0 {
		e.transferSpeed = DefaultTransferSpeed
	}
	if !(e.transferSpeed > 0) || math.IsInf(e.transferSpeed, 0) || o.CPUCacheTokens < 0 || o.CPUCacheTokens/o.BlockSize >= math.MaxInt32 {
		return nil, fmt.Errorf("sim: %d tokens in the memory of the host, copied at %v tokens/s", o.CPUCacheTokens, o.TransferSpeed)
	}
	if host := o.CPUCacheTokens / o.BlockSize; host > 0 {
		e.host = newHostCache(host)
		e.cache.evicted = e.host.keep
	}
	return e, nil
}

// Follow adds callbacks to EngineOptions.Stored and Removed. They are called
// after those that exist.
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

// Holds reports whether the block of that key is cached.
func (e *Engine) Holds(key uint64) bool {
	_, ok := e.cache.table[key]
	return ok
}

// Submit queues a job at time now. It returns ErrTooLarge for a job that never
// fits, and an error for a job without input or output.
func (e *Engine) Submit(now time.Duration, j *Job) error {
	if j.Input < 1 || j.Output < 1 {
		return fmt.Errorf("sim: a job with %d input and %d output tokens, want at least 1", j.Input, j.Output)
	}
	if !e.Fits(j) {
		return ErrTooLarge
	}
	j.state = jobWaiting
	e.waiting.pushBack(j)
	e.Wake(now)
	return nil
}

// Fits reports whether the whole cache is large enough for a job.
func (e *Engine) Fits(j *Job) bool { return e.blocksFor(j.Input+j.Output) <= e.cache.size() }

// Wake makes the engine check its queue at the next step, or now if it is idle.
func (e *Engine) Wake(now time.Duration) {
	switch {
	case !e.active:
		e.schedule(now)
	case !e.copying || e.mayAdmit(): // engines that share a queue wake each other
		e.cut(now)
	}
}

// SetProfile changes the speed at time now, from the next step on. The chunk and
// the limits of p must be those of the engine's profile.
func (e *Engine) SetProfile(now time.Duration, p Profile) {
	e.cut(now)
	e.pending = &p
	if !e.active {
		e.schedule(now)
	}
}

// Cancel ends a job at time now; no event about it follows. A running job holds
// its blocks until the step in progress ends. Cancel ignores a job that has
// ended or was never submitted.
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

// Next returns when the step in progress ends, and false if the engine is idle.
func (e *Engine) Next() (time.Duration, bool) { return e.end, e.active }

// Step ends the step in progress, if it is due at now, and begins the next. It
// returns the events of the step that ended; the slice is valid until the next
// call.
func (e *Engine) Step(now time.Duration) []Event {
	e.events = e.events[:0]
	if !e.active || now < e.end {
		return nil
	}
	at := e.end
	for _, j := range e.leaving {
		e.release(j)
	}
	e.leaving = e.leaving[:0]

	e.stats.Steps += uint64(e.steps)
	e.stats.GenerationTokens += uint64(e.steps * len(e.decodes))
	e.clock += e.steps
	e.context += e.steps * len(e.decodes)
	if e.eachToken {
		for _, j := range e.decodes {
			e.emit(Token, j)
		}
	}
	e.advancePrefills()
	e.advanceDecodes()
	e.schedule(at)
	return e.events
}

// Stats returns the counters as of the last step that ended.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Waiting, s.Running = e.waiting.len(), len(e.running)
	s.TotalBlocks, s.BlockSize = e.cache.size(), e.blockSize
	s.UsedBlocks, s.CachedBlocks = e.cache.size()-e.cache.free, len(e.cache.table)
	return s
}

// Jobs calls f for each running and each waiting job.
func (e *Engine) Jobs(f func(j *Job, running bool)) {
	for _, j := range e.running {
		f(j, true)
	}
	e.waiting.each(func(j *Job) { f(j, false) })
}

func (e *Engine) emit(kind EventKind, j *Job) {
	e.events = append(e.events, Event{Kind: kind, Job: j, At: e.end})
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.blockSize - 1) / e.blockSize }

// produced returns the number of output tokens of a job.
func (e *Engine) produced(j *Job) int {
	if j.state == jobDecode {
		return j.tokens + e.clock - j.joined
	}
	return j.tokens
}

// decodeTime returns the duration in nanoseconds of the next n decode steps.
// Each reads the context, which grows by one token per job and step.
func (e *Engine) decodeTime(n int) float64 {
	grown := float64(len(e.decodes)) * float64(n) * float64(n-1) / 2
	return float64(n)*float64(e.p.Base) + e.p.ContextRead*(float64(n)*float64(e.context)+grown)
}

// cut shortens a run of decode steps so that it ends with the one in progress at
// now. A step that ends exactly at now has ended.
func (e *Engine) cut(now time.Duration) {
	if e.active && e.copying {
		e.end = min(e.end, max(e.start, now))
	}
	if !e.active || e.steps == 1 {
		return
	}
	n := 1 + sort.Search(e.steps-1, func(i int) bool {
		return e.start+time.Duration(e.decodeTime(i+1)) > now
	})
	e.steps, e.end = n, e.start+time.Duration(e.decodeTime(n))
}

// Generated returns the number of output tokens of a job that has ended.
func (j *Job) Generated() int { return j.tokens }
