package decider

import (
	"sync/atomic"
	"time"
)

// Recorder receives each request that has ended.
type Recorder interface {
	// Record is called with a pool locked: it must not block or call the pool, and
	// must keep neither e nor what it points to.
	Record(e *Ended)
}

// Ended is a request that has ended, as far as its pool knows it.
type Ended struct {
	Pool        string
	Request     *Request
	At          time.Duration // when it came, by the pool's clock
	Lasted      time.Duration // until it ended
	TTFT        time.Duration // from At; 0 = not known
	Blocks      []uint64      // chained hashes of the blocks of its prompt's text
	BlockTokens int           // in each of them, estimated
	Band        string        // "" without an admission
	Outcome     string        // the name of an End, or Shed
	Status      int           // of the answer; 0 = not known
	Output      int           // tokens of the answer, estimated; -1 = not known
}

// Shed is the Outcome of a request that the agent has refused.
const Shed = "shed"

// recording is the recorder of all pools of a decider.
type recording struct{ current atomic.Pointer[Recorder] }

// SetRecorder makes r receive the requests that end from now on; nil = nobody does. While
// there is a recorder, prompts are hashed for all policies.
func (d *Decider) SetRecorder(r Recorder) {
	if r == nil {
		d.recording.current.Store(nil)
		return
	}
	d.recording.current.Store(&r)
}

// RecordsText reports whether the prompts of requests are to be hashed for a
// recording.
func (r *recording) RecordsText() bool { return r.current.Load() != nil }

// recordEnd records how the request of v ended, if its prompt is known.
func recordEnd(p *Pool, v *reservation, o *Outcome, now time.Duration) {
	if !p.RecordsText() || !v.isKnown() {
		return
	}
	p.ended = Ended{At: v.at - v.waited, Status: o.Status, Outcome: o.End.String(), TTFT: o.TTFT, Output: p.answers.tokens(&v.request, o)}
	if o.TTFT == 0 {
		p.ended.TTFT = v.ttft
	}
	handToRecorder(p, &v.request, v.request.Blocks[:min(v.seen, len(v.request.Blocks))], now)
}

// recordRefusal records that the agent has refused r.
func recordRefusal(p *Pool, r *Request, status int, waited, now time.Duration) {
	p.ended = Ended{At: now - waited, Status: status, Outcome: Shed, Output: -1}
	handToRecorder(p, r, r.Blocks, now)
}

// handToRecorder completes p.ended and hands it to the recorder. seen are the blocks of r
// that the policy compares.
func handToRecorder(p *Pool, r *Request, seen []uint64, now time.Duration) {
	to := p.recording.current.Load()
	if to == nil {
		return
	}
	e := &p.ended
	// The proxy's clock and ours differ: no request ends before its first byte.
	e.Pool, e.Request, e.Lasted = p.name, r, max(now-e.At, e.TTFT)
	if e.Blocks = r.TextBlocks; len(e.Blocks) == 0 && p.ComparesText() && !r.Short {
		e.Blocks = seen
	}
	e.BlockTokens = max(1, int(BlockBytes/p.BytesPerToken()+0.5))
	if p.admission.on() && !p.Shadows(r) {
		e.Band = p.admission.Band(p.admission.Clamp(r.Band)).Name
	}
	(*to).Record(e)
	*e = Ended{}
}
