package fakevllm

import (
	"sync"
	"sync/atomic"
	"time"

	"pointsman/sim"
)

// engine runs a sim.Engine in real time, or as fast as possible at speed 0.
type engine struct {
	speed   float64 // multiples of real time
	started time.Time

	mu      sync.Mutex // guards what follows
	model   *sim.Engine
	virtual time.Duration // the model's time, at speed 0
	metrics metrics
	events  *publisher // nil: no events are published

	held atomic.Int64 // requests that wait for a fault or for Hold, which count as running

	wake   chan struct{} // one slot
	closed chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// sequence is one job of a call, and what its handler needs to know about it.
type sequence struct {
	sim.Job
	call     *call
	lora     string
	salt     string   // cache_salt
	tokens   []uint32 // of prompt and answer, only if events are published
	reports  bool     // blocks that it reuses are reported again
	finish   string   // finish_reason once all tokens exist
	produced atomic.Int32
	arrived  time.Duration // in the model's time
	last     time.Duration // of the last token, likewise
}

// call is one HTTP request in the engine: a sequence for each choice.
type call struct {
	seqs   []*sequence
	stream bool
	open   int           // sequences that have not ended; guarded by engine.mu
	notify chan struct{} // one slot; filled when there is something to send
	done   atomic.Bool   // all sequences have ended
}

// newEngine starts an engine; close ends it.
func newEngine(o Options) (*engine, error) {
	e := &engine{speed: o.Speed, started: time.Now(), wake: make(chan struct{}, 1), closed: make(chan struct{})}
	mo := o.engineOptions()
	if o.Events != "" {
		e.events = newPublisher(o, &e.mu)
		mo.Stored, mo.Removed = e.events.blockStored, e.events.log.Removed
	}
	model, err := sim.NewEngine(mo)
	if err != nil {
		return nil, err
	}
	e.model = model
	if e.events != nil {
		log := e.events.log
		model.FollowOffloaded(
			func(key uint64) { log.Copied(MediumCPU, key) },
			func(key uint64) { log.RemovedFrom(MediumCPU, key) })
	}
	e.metrics.init()
	e.done.Go(e.run)
	return e, nil
}

// close stops the engine and waits until it has stopped. It may be called more
// than once.
func (e *engine) close() {
	e.once.Do(func() { close(e.closed) })
	e.done.Wait()
	if e.events != nil {
		e.events.close()
	}
}

// stats returns a snapshot of the model.
func (e *engine) stats() sim.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.model.Stats()
}

// run ends the model's steps when they are due, until close.
func (e *engine) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.mu.Lock()
		wait, busy := e.advance()
		e.mu.Unlock()
		if wait > 0 || !busy {
			if !busy {
				wait = time.Hour
			}
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-e.wake:
			case <-e.closed:
				return
			}
			continue
		}
		select {
		case <-e.closed:
			return
		default:
		}
	}
}

// now returns the model's time.
func (e *engine) now() time.Duration {
	if e.speed == 0 {
		return e.virtual
	}
	return time.Duration(float64(time.Since(e.started)) * e.speed)
}

// seconds converts a duration in the model's time to real seconds.
func (e *engine) seconds(d time.Duration) float64 {
	if e.speed == 0 {
		return 0
	}
	return d.Seconds() / e.speed
}

// advance ends the steps that are due. It returns the time until the next step
// ends, and whether there is one. At speed 0 it takes a bounded number of steps,
// so that others get the lock.
func (e *engine) advance() (wait time.Duration, busy bool) {
	for range 256 {
		next, ok := e.model.Next()
		if !ok {
			return 0, false
		}
		if e.speed == 0 {
			e.virtual = next
		} else if now := e.now(); next > now {
			return max(1, time.Duration(float64(next-now)/e.speed)), true
		}
		for _, ev := range e.model.Step(next) {
			e.handle(ev)
		}
		if e.events != nil {
			e.events.flush()
		}
	}
	return 0, true
}

// handle counts an event and wakes the handler of its call.
func (e *engine) handle(ev sim.Event) {
	q := ev.Job.Owner.(*sequence)
	switch ev.Kind {
	case sim.FirstToken:
		e.metrics.firstToken.observe(e.seconds(ev.At - q.arrived))
		q.last = ev.At
		q.produced.Add(1)
		if e.events != nil && q.reports {
			for i := range q.Cached / e.events.o.BlockSize {
				e.events.blockStored(&q.Job, i)
			}
		}
	case sim.Token:
		e.metrics.interToken.observe(e.seconds(ev.At - q.last))
		q.last = ev.At
		q.produced.Add(1)
	case sim.Finished:
		e.metrics.requestTime.observe(e.seconds(ev.At - q.arrived))
		e.metrics.finished(q.finish)
		if q.call.open--; q.call.open == 0 {
			q.call.done.Store(true)
		}
	default:
		return
	}
	if q.call.stream || q.call.done.Load() {
		select {
		case q.call.notify <- struct{}{}:
		default:
		}
	}
}

// submit submits the jobs of a call. It fails only for a job that is larger than
// the cache.
func (e *engine) submit(c *call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.catchUp()
	now := e.now()
	c.open = len(c.seqs)
	for _, q := range c.seqs {
		q.Owner, q.call, q.arrived = q, c, now
		if err := e.model.Submit(now, &q.Job); err != nil {
			e.cancelLocked(c)
			return err
		}
	}
	e.poke()
	return nil
}

// cancel ends a call whose client has disconnected.
func (e *engine) cancel(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.catchUp()
	e.cancelLocked(c)
	e.poke()
}

func (e *engine) cancelLocked(c *call) {
	before := e.model.Stats().Cancelled
	for _, q := range c.seqs {
		e.model.Cancel(e.now(), &q.Job)
	}
	for range e.model.Stats().Cancelled - before {
		e.metrics.finished("abort")
	}
}

// catchUp ends all steps that are due, as sim.Engine requires before a call at a
// later time. At speed 0 time stands still between steps, so none is due.
func (e *engine) catchUp() {
	if e.speed == 0 {
		return
	}
	for {
		if wait, busy := e.advance(); wait > 0 || !busy {
			return
		}
	}
}

// poke makes run check the model again.
func (e *engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
