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

// small is a fast profile with low limits.
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

// TestEngineStepsAtOnce: simulating many decode steps as one changes only the
// rounding of each step to nanoseconds, and equal runs are equal.
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
			// All times of this model are whole microseconds, and arrivals are not:
			// they never coincide, so rounding cannot change the order.
			at += time.Duration(rapid.IntRange(0, 100).Draw(t, "gap"))*time.Millisecond + 517*time.Microsecond + 333
		}
		run := func(each bool) (out []string, times []time.Duration, steps uint64) {
			e := newTestEngine(t, EngineOptions{Profile: small, BlockSize: blockSize, CacheTokens: 160, EachToken: each})
			names := map[*Job]int{}
			record := func(events []Event) {
				for _, ev := range events {
					if ev.Kind != Token {
						out = append(out, fmt.Sprint(ev.Kind, names[ev.Job], ev.Job.Cached))
						times = append(times, ev.At)
					}
				}
			}
			for i, a := range arrivals {
				for next, ok := e.Next(); ok && next <= a.at; next, ok = e.Next() {
					record(e.Step(next))
				}
				j := *a.j
				names[&j] = i
				if err := e.Submit(a.at, &j); err != nil {
					t.Fatal(err)
				}
			}
			for next, ok := e.Next(); ok; next, ok = e.Next() {
				record(e.Step(next))
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
		t.Errorf("%d tokens cached after another first block", got)
	}
	// The last token has no KV yet: 4 + 5 tokens give 8 cached ones.
	run([]uint64{20, 21}, 4, 5)
	if got := run([]uint64{20, 21}, 9, 1); got != 8 {
		t.Errorf("%d tokens cached, want 8: the answer is cached too", got)
	}
	// A prompt as large as the cache evicts everything else.
	run(nil, 79, 1)
	if got := run([]uint64{1, 2, 3}, 14, 1); got != 0 {
		t.Errorf("%d tokens cached after all was evicted", got)
	}
}

// TestEngineEviction: the deepest blocks of a finished job are evicted first.
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
	if n, _ := e.cache.matchPrefix([]uint64{1, 2, 3, 4, 5, 6}); n != 4 {
		t.Errorf("%d blocks of the first job left, want 4", n)
	}
	if n, _ := e.cache.matchPrefix([]uint64{11, 12, 13, 14, 15, 16}); n != 6 {
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
		t.Error("accepted a job without output")
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

// TestEngineCancelUnblocks: when the head of the queue is cancelled, the next
// job does not wait for memory that only the head needed.
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
