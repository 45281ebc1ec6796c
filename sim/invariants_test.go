package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkEngine compares all that an engine counts incrementally with a new count.
func checkEngine(t *rapid.T, e *Engine) {
	c := e.cache
	refs := make([]int32, len(c.blocks))
	context, decodes := 0, 0
	for i, j := range e.running {
		if j.place != i {
			t.Fatalf("job at index %d has place %d", i, j.place)
		}
		for _, b := range j.blocks {
			refs[b]++
		}
		if j.state == jobDecode {
			decodes++
			context += j.Input + e.produced(j)
			if e.decodes[j.slot] != j {
				t.Fatal("job not at its slot in the heap")
			}
		}
	}
	if context != e.context || decodes != len(e.decodes) || len(e.running) != decodes+len(e.prefills) {
		t.Fatalf("context %d, want %d; %d decoding, want %d; %d in prefill of %d", e.context, context, len(e.decodes), decodes, len(e.prefills), len(e.running))
	}
	if len(e.running) > e.p.MaxRunning {
		t.Fatalf("%d running", len(e.running))
	}
	loading := 0
	for _, j := range e.prefills {
		if j.loading > 0 {
			loading++
		}
	}
	if loading != e.loading {
		t.Fatalf("%d wait for copies, %d counted", loading, e.loading)
	}
	if h := e.host; h != nil && (len(h.places) != h.order.Len() || h.order.Len() > h.size) {
		t.Fatalf("%d blocks of %d in the memory of the host, %d found", h.order.Len(), h.size, len(h.places))
	}
	free, keyed := 0, 0
	for b := 1; b < len(c.blocks); b++ {
		p := c.blocks[b]
		if p.ref != refs[b] {
			t.Fatalf("block %d has %d references, want %d", b, p.ref, refs[b])
		}
		if p.ref == 0 {
			free++
		}
		if p.keyed {
			keyed++
			if c.table[p.key] != int32(b) {
				t.Fatalf("block %d is not in the table under its key", b)
			}
		}
	}
	if keyed != len(c.table) {
		t.Fatalf("%d blocks have keys, %d are in the table", keyed, len(c.table))
	}
	listed := 0
	for b := c.blocks[0].next; b != 0; b = c.blocks[b].next {
		if listed++; listed > free {
			t.Fatal("the free list is longer than the number of free blocks")
		}
	}
	if listed != free || c.free != free {
		t.Fatalf("%d free, %d listed, %d counted", free, listed, c.free)
	}
	s := e.Stats()
	if s.HitTokens > s.QueryTokens || s.UsedBlocks > s.TotalBlocks {
		t.Fatalf("impossible stats %+v", s)
	}
}

// drawJob makes a job whose prompt shares a prefix with others.
func drawJob(t *rapid.T, blockSize int) *Job {
	j := &Job{
		Input:  rapid.IntRange(1, 60).Draw(t, "input"),
		Output: rapid.IntRange(1, 40).Draw(t, "output"),
	}
	family := rapid.Uint64Range(1, 3).Draw(t, "family")
	shared := rapid.IntRange(0, 8).Draw(t, "shared blocks")
	own := rapid.Uint64Range(1, 1000).Draw(t, "own")
	total := j.Input / blockSize
	if rapid.Bool().Draw(t, "keys for the output") {
		total = (j.Input + j.Output) / blockSize
	}
	for i := range total {
		key := family<<32 | uint64(i)
		if i >= shared {
			key |= own << 40
		}
		j.Blocks = append(j.Blocks, key)
	}
	return j
}

// TestEngineInvariants: whatever is submitted and cancelled, the counters agree,
// first tokens come in the order of submission where none waits for a copy, and every job
// ends once.
func TestEngineInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blockSize = 4
		e := newTestEngine(t, EngineOptions{
			Profile: small, BlockSize: blockSize, EachToken: rapid.Bool().Draw(t, "each token"),
			CacheTokens:    rapid.IntRange(100, 200).Draw(t, "cache"),
			CPUCacheTokens: rapid.SampledFrom([]int{0, 0, 40, 1000}).Draw(t, "cache of the host"),
			TransferSpeed:  rapid.Float64Range(1000, 1e6).Draw(t, "transfer"),
		})
		type fate struct {
			order            int
			first, end, gone bool
			preempted        bool
			tokens           int
		}
		fates := map[*Job]*fate{}
		var jobs []*Job
		lastFirst := -1
		now := time.Duration(0)
		step := func(until time.Duration) {
			for {
				next, ok := e.Next()
				if !ok || next > until {
					return
				}
				if next < now {
					t.Fatalf("step ends at %v, before %v", next, now)
				}
				now = next
				for _, ev := range e.Step(next) {
					f := fates[ev.Job]
					if f.end || f.gone || ev.At != next {
						t.Fatalf("event %v at %v after the end of its job (%+v)", ev.Kind, ev.At, f)
					}
					switch ev.Kind {
					case FirstToken:
						if f.first {
							t.Fatal("two first tokens")
						}
						if !f.preempted {
							if f.order < lastFirst && e.host == nil { // what is copied lets others pass
								t.Fatalf("job %d had its first token after job %d", f.order, lastFirst)
							}
							lastFirst = f.order
						}
						if ev.Job.Cached >= ev.Job.Input || ev.Job.Cached > e.cache.size()*blockSize {
							t.Fatalf("%d of %d tokens cached", ev.Job.Cached, ev.Job.Input)
						}
						f.first = true
						f.tokens++
					case Token:
						f.tokens++
					case Preempted:
						f.preempted = true
					case Finished:
						f.end = true
						if !f.first || e.eachToken && f.tokens != ev.Job.Output {
							t.Fatalf("finished with %d of %d tokens", f.tokens, ev.Job.Output)
						}
					}
				}
				checkEngine(t, e)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			until := now + time.Duration(rapid.IntRange(0, 40).Draw(t, "pause"))*time.Millisecond
			step(until)
			now = until
			if len(jobs) > 0 && rapid.IntRange(0, 4).Draw(t, "action") == 0 {
				j := rapid.SampledFrom(jobs).Draw(t, "cancelled")
				e.Cancel(now, j)
				if f := fates[j]; !f.end {
					f.gone = true
				}
			} else {
				j := drawJob(t, blockSize)
				fates[j] = &fate{order: len(jobs)}
				jobs = append(jobs, j)
				if err := e.Submit(now, j); err != nil {
					t.Fatal(err)
				}
			}
			checkEngine(t, e)
		}
		step(math.MaxInt64)
		for _, j := range jobs {
			if f := fates[j]; !f.end && !f.gone {
				t.Fatalf("job %d never ended", f.order)
			}
		}
		s := e.Stats()
		if s.UsedBlocks != 0 || s.Running != 0 || s.Waiting != 0 || int(s.Finished+s.Cancelled) != len(jobs) {
			t.Fatalf("not idle: %+v", s)
		}
	})
}
