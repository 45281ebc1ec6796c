package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// small is a fast profile whose limits are easily met.
var small = Profile{
	Name: "small", PrefillRate: 1000, Chunk: 16, Base: time.Millisecond,
	ContextRead: 1000, AttentionDepth: 100, MaxRunning: 4,
}

func newTestEngine(t rapid.TB, o EngineOptions) *Engine {
	t.Helper()
	e, err := NewEngine(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// finish runs an engine until it is idle.
func finish(e *Engine) (events []Event) {
	for {
		next, ok := e.Next()
		if !ok {
			return events
		}
		events = append(events, e.Step(next)...)
	}
}

// check compares all that an engine counts incrementally with a fresh count.
func check(t *rapid.T, e *Engine) {
	c := e.cache
	refs := make([]int32, len(c.blocks))
	context, decodes := 0, 0
	for i, j := range e.running {
		if j.place != i {
			t.Fatalf("job in place %d says %d", i, j.place)
		}
		for _, b := range j.blocks {
			refs[b]++
		}
		if j.state == jobDecode {
			decodes++
			context += j.Input + e.produced(j)
			if e.decodes[j.slot] != j {
				t.Fatal("job not in its slot of the heap")
			}
		}
	}
	if context != e.context || decodes != len(e.decodes) || len(e.running) != decodes+len(e.prefills) {
		t.Fatalf("context %d, want %d; %d decoding, want %d; %d in prefill of %d", e.context, context, len(e.decodes), decodes, len(e.prefills), len(e.running))
	}
	if len(e.running) > e.p.MaxRunning {
		t.Fatalf("%d running", len(e.running))
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
				t.Fatalf("block %d is not found by its key", b)
			}
		}
	}
	if keyed != len(c.table) {
		t.Fatalf("%d blocks have keys, %d are in the table", keyed, len(c.table))
	}
	listed := 0
	for b := c.blocks[0].next; b != 0; b = c.blocks[b].next {
		if listed++; listed > free {
			t.Fatal("more in the free list than free")
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

// drawJob makes a job whose prompt shares its beginning with others.
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

func TestEngineInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blockSize = 4
		e := newTestEngine(t, EngineOptions{
			Profile: small, BlockSize: blockSize, EachToken: rapid.Bool().Draw(t, "each token"),
			CacheTokens: rapid.IntRange(100, 200).Draw(t, "cache"),
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
							if f.order < lastFirst {
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
				check(t, e)
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
			check(t, e)
		}
		step(math.MaxInt64)
		for _, j := range jobs {
			if f := fates[j]; !f.end && !f.gone {
				t.Fatalf("job %d never ended", f.order)
			}
		}
		s := e.Stats()
		if s.UsedBlocks != 0 || s.Running != 0 || s.Waiting != 0 || int(s.Finished+s.Cancelled) != len(jobs) {
			t.Fatalf("left behind: %+v", s)
		}
	})
}

// Taking decode steps many at once changes nothing but the rounding of each
// step to nanoseconds, and equal runs are equal.
func TestEngineStepsAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blockSize = 4
		type arrival struct {
			at time.Duration
			j  *Job
		}
		var arrivals []arrival
		at := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			arrivals = append(arrivals, arrival{at, drawJob(t, blockSize)})
			// All times of the model are whole microseconds here: these never tie,
			// so rounding cannot change the order.
			at += time.Duration(rapid.IntRange(0, 100).Draw(t, "gap"))*time.Millisecond + 517*time.Microsecond + 333
		}
		run := func(each bool) (out []string, times []time.Duration, steps uint64) {
			e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: blockSize, CacheTokens: 160, EachToken: each})
			names := map[*Job]int{}
			note := func(events []Event) {
				for _, ev := range events {
					if ev.Kind != Token {
						out = append(out, fmt.Sprint(ev.Kind, names[ev.Job], ev.Job.Cached))
						times = append(times, ev.At)
					}
				}
			}
			for i, a := range arrivals {
				for next, ok := e.Next(); ok && next <= a.at; next, ok = e.Next() {
					note(e.Step(next))
				}
				j := *a.j
				names[&j] = i
				if err := e.Submit(a.at, &j); err != nil {
					t.Fatal(err)
				}
			}
			for next, ok := e.Next(); ok; next, ok = e.Next() {
				note(e.Step(next))
			}
			return out, times, e.Stats().Steps
		}
		many, manyTimes, manySteps := run(false)
		each, eachTimes, eachSteps := run(true)
		if !slices.Equal(many, each) || manySteps != eachSteps {
			t.Fatalf("%d steps: %v\n%d steps: %v", manySteps, many, eachSteps, each)
		}
		for i := range manyTimes {
			if d := manyTimes[i] - eachTimes[i]; d.Abs() > 100*time.Microsecond {
				t.Fatalf("%s at %v, %v step by step", many[i], manyTimes[i], eachTimes[i])
			}
		}
		again, againTimes, _ := run(false)
		if !slices.Equal(many, again) || !slices.Equal(manyTimes, againTimes) {
			t.Fatal("two equal runs differ")
		}
	})
}

func TestEngineTimes(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: Profile70B, BlockSize: 16, CacheTokens: 100_000})
	j := &Job{Input: 10_000, Output: 101}
	if err := e.Submit(time.Second, j); err != nil {
		t.Fatal(err)
	}
	events := finish(e)
	if len(events) != 2 || events[0].Kind != FirstToken || events[1].Kind != Finished {
		t.Fatalf("events %v", events)
	}
	// 10,000 tokens at 10,000/s, and attention over a mean of 5,000 of 44,500.
	// The last chunk of 784 is still longer than the shortest step.
	prefill := 1 + 5000/44_500.0
	if got := (events[0].At - time.Second).Seconds(); math.Abs(got-prefill) > 1e-6 {
		t.Errorf("first token after %v s, want %v", got, prefill)
	}
	// 100 steps that read 10,001 to 10,100 tokens of context.
	decode := 100*0.020 + 34e-9*100*10_050.5
	if got := (events[1].At - events[0].At).Seconds(); math.Abs(got-decode) > 1e-6 {
		t.Errorf("decode took %v s, want %v", got, decode)
	}
	if s := e.Stats(); s.Steps != 110 || s.PromptTokens != 10_000 || s.GenerationTokens != 101 {
		t.Errorf("stats %+v", s)
	}
}

func TestEnginePrefixHit(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 80})
	run := func(keys []uint64, input, output int) int {
		j := &Job{Blocks: keys, Input: input, Output: output}
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
		finish(e)
		return j.Cached
	}
	if got := run([]uint64{1, 2, 3}, 12, 1); got != 0 {
		t.Errorf("%d tokens cached in an empty engine", got)
	}
	if got := run([]uint64{1, 2, 3}, 12, 1); got != 8 {
		t.Errorf("%d tokens cached, want 8: the last token is always computed", got)
	}
	if got := run([]uint64{1, 2, 3, 4}, 18, 1); got != 12 {
		t.Errorf("%d tokens cached, want 12", got)
	}
	if got := run([]uint64{9, 2, 3}, 14, 1); got != 0 {
		t.Errorf("%d tokens cached behind another beginning", got)
	}
	// The last token has no KV yet: 4 + 5 tokens give 8 that can be found.
	run([]uint64{20, 21}, 4, 5)
	if got := run([]uint64{20, 21}, 9, 1); got != 8 {
		t.Errorf("%d tokens cached, want 8: the answer counts", got)
	}
	// A prompt as large as the cache leaves only what it holds itself.
	run(nil, 79, 1)
	if got := run([]uint64{1, 2, 3}, 14, 1); got != 0 {
		t.Errorf("%d tokens cached after all was evicted", got)
	}
}

// The deepest blocks of a finished job are evicted first.
func TestEngineEviction(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40})
	for _, j := range []*Job{
		{Blocks: []uint64{1, 2, 3, 4, 5, 6}, Input: 24, Output: 1},
		{Blocks: []uint64{11, 12, 13, 14, 15, 16}, Input: 24, Output: 1},
	} {
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
		finish(e)
	}
	// 10 blocks: the second job took two from the deep end of the first.
	if n, _ := e.cache.chain([]uint64{1, 2, 3, 4, 5, 6}); n != 4 {
		t.Errorf("%d blocks of the first job left, want 4", n)
	}
	if n, _ := e.cache.chain([]uint64{11, 12, 13, 14, 15, 16}); n != 6 {
		t.Errorf("%d blocks of the second job left, want 6", n)
	}
}

func TestEnginePreemption(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40})
	old, young := &Job{Input: 16, Output: 20}, &Job{Input: 16, Output: 20}
	for _, j := range []*Job{old, young} {
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for _, ev := range finish(e) {
		name := "old"
		if ev.Job == young {
			name = "young"
		}
		order = append(order, name+" "+ev.Kind.String())
	}
	want := []string{"old first token", "young first token", "young preempted", "old finished", "young finished"}
	if !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

func TestEngineCancel(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 4, CacheTokens: 40})
	running, waiting := &Job{Input: 20, Output: 20}, &Job{Input: 40, Output: 0}
	if err := e.Submit(0, waiting); err == nil {
		t.Error("took a job without output")
	}
	waiting = &Job{Input: 38, Output: 2}
	for _, j := range []*Job{running, waiting} {
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Submit(0, &Job{Input: 38, Output: 3}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("41 tokens in a cache of 40: %v", err)
	}
	for range 3 {
		next, _ := e.Next()
		e.Step(next)
	}
	if s := e.Stats(); s.Running != 1 || s.Waiting != 1 {
		t.Fatalf("stats %+v", s)
	}
	next, _ := e.Next()
	e.Cancel(next-1, running)
	e.Cancel(next-1, running)
	if events := finish(e); len(events) != 2 || events[0].Job != waiting {
		t.Errorf("events %v", events)
	}
	if s := e.Stats(); s.Cancelled != 1 || s.Finished != 1 || s.UsedBlocks != 0 {
		t.Errorf("stats %+v", s)
	}
	e.Cancel(next, waiting)
	e.Cancel(next, &Job{})
	if s := e.Stats(); s.Cancelled != 1 {
		t.Errorf("cancelled a job that had ended: %+v", s)
	}
}

// When the head of the queue is cancelled, the next job does not wait for
// memory that only the head needed.
func TestEngineCancelUnblocks(t *testing.T) {
	e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: 400, CacheTokens: 800})
	long, head, next := &Job{Input: 1, Output: 300}, &Job{Input: 500, Output: 1}, &Job{Input: 1, Output: 1}
	for _, j := range []*Job{long, head, next} {
		if err := e.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	end, _ := e.Next()
	e.Step(end) // the first token of long; head does not fit
	e.Cancel(end, head)
	if events := finish(e); len(events) != 3 || events[1].Job != next || events[2].Job != long {
		t.Errorf("events %v", events)
	}
}

func TestProfiles(t *testing.T) {
	for name := range profiles {
		p, err := ProfileByName(name)
		if err != nil || p.Name != name {
			t.Errorf("%s: %v %v", name, p.Name, err)
		}
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		half := p.Scale(0.5)
		if half.Base != 2*p.Base || half.PrefillRate != p.PrefillRate/2 || half.ContextRead != 2*p.ContextRead {
			t.Errorf("half of %+v is %+v", p, half)
		}
	}
	_, err := ProfileByName("7b")
	if err == nil || err.Error() != `profile: unknown "7b"; want 70b or 8b` {
		t.Error(err)
	}
	for _, broken := range []func(*Profile){
		func(p *Profile) { p.PrefillRate = math.NaN() },
		func(p *Profile) { p.Chunk = p.MaxRunning },
		func(p *Profile) { p.MaxRunning = 0 },
		func(p *Profile) { p.Base = -1 },
		func(p *Profile) { p.AttentionDepth = 0 },
	} {
		p := Profile8B
		broken(&p)
		if _, err := NewEngine(EngineOptions{Profile: p, BlockSize: 16, CacheTokens: 1600}); err == nil {
			t.Errorf("took %+v", p)
		}
	}
}
