package fakevllm

import (
	"sync/atomic"
	"time"

	"pointsman/sim"
)

// sequence is one job of a call and what its handler has to know of it.
type sequence struct {
	sim.Job
	call     *call
	lora     string
	salt     string   // cache_salt
	tokens   []uint32 // of prompt and answer; kept only where events are published
	finish   string   // finish_reason once all tokens are there
	produced atomic.Int32
	arrived  time.Duration // in the engine's time, as is the next
	last     time.Duration
}

// call is one HTTP request in the engine: a sequence for each choice.
type call struct {
	seqs   []*sequence
	stream bool
	open   int           // sequences that have not ended; guarded by Server.mu
	notify chan struct{} // one slot; filled when there is something to send
	done   atomic.Bool   // all sequences ended
}

// run ends the engine's steps when they are due, until Close.
func (s *Server) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		wait, busy := s.advance()
		s.mu.Unlock()
		if wait > 0 || !busy {
			if !busy {
				wait = time.Hour
			}
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-s.wake:
			case <-s.closed:
				return
			}
			continue
		}
		select {
		case <-s.closed:
			return
		default:
		}
	}
}

// now is the engine's time.
func (s *Server) now() time.Duration {
	if s.o.Speed == 0 {
		return s.virtual
	}
	return time.Duration(float64(time.Since(s.started)) * s.o.Speed)
}

// seconds is a span of the engine's time as seen from outside.
func (s *Server) seconds(d time.Duration) float64 {
	if s.o.Speed == 0 {
		return 0
	}
	return d.Seconds() / s.o.Speed
}

// advance ends the steps that are due, and tells how long the next one takes
// and whether there is one. At speed 0 it takes a bounded number of steps, so
// that others get the lock.
func (s *Server) advance() (wait time.Duration, busy bool) {
	for range 256 {
		next, ok := s.engine.Next()
		if !ok {
			return 0, false
		}
		if s.o.Speed == 0 {
			s.virtual = next
		} else if now := s.now(); next > now {
			return max(1, time.Duration(float64(next-now)/s.o.Speed)), true
		}
		for _, ev := range s.engine.Step(next) {
			s.deliver(ev)
		}
		if s.events != nil {
			s.events.flush()
		}
	}
	return 0, true
}

// deliver tells a handler what the engine did for it.
func (s *Server) deliver(ev sim.Event) {
	q := ev.Job.Owner.(*sequence)
	switch ev.Kind {
	case sim.FirstToken:
		s.metrics.firstToken.observe(s.seconds(ev.At - q.arrived))
		q.last = ev.At
		q.produced.Add(1)
	case sim.Token:
		s.metrics.interToken.observe(s.seconds(ev.At - q.last))
		q.last = ev.At
		q.produced.Add(1)
	case sim.Finished:
		s.metrics.requestTime.observe(s.seconds(ev.At - q.arrived))
		s.metrics.finished(q.finish)
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

// submit hands a call to the engine. The jobs were checked against the model
// length, so the engine takes them.
func (s *Server) submit(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUp()
	now := s.now()
	c.open = len(c.seqs)
	for _, q := range c.seqs {
		q.Owner, q.call, q.arrived = q, c, now
		if err := s.engine.Submit(now, &q.Job); err != nil {
			s.cancelLocked(c)
			return err
		}
	}
	s.poke()
	return nil
}

// cancel ends a call whose client went away.
func (s *Server) cancel(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUp()
	s.cancelLocked(c)
	s.poke()
}

func (s *Server) cancelLocked(c *call) {
	before := s.engine.Stats().Cancelled
	for _, q := range c.seqs {
		s.engine.Cancel(s.now(), &q.Job)
	}
	for range s.engine.Stats().Cancelled - before {
		s.metrics.finished("abort")
	}
}

// catchUp ends all steps that are due, as the engine wants before it hears of
// anything new. At speed 0 time stands still between steps, so none is.
func (s *Server) catchUp() {
	if s.o.Speed == 0 {
		return
	}
	for {
		if wait, busy := s.advance(); wait > 0 || !busy {
			return
		}
	}
}

// poke makes run look at the engine again.
func (s *Server) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
