package sim

import (
	"testing"
	"time"
)

// blocksOf are the keys of a document of n blocks.
func blocksOf(document uint64, n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = document<<32 | uint64(i)
	}
	return keys
}

// What the GPU evicts is kept, as much as fits, and comes back in the time of its copy.
func TestOffloadedBlocksComeBack(t *testing.T) {
	profile := small
	profile.MaxRunning, profile.Chunk = 8, 1024
	kept, dropped := map[uint64]bool{}, 0
	e := newTestEngine(t, EngineOptions{
		Profile: profile, BlockSize: 4, CacheTokens: 120, CPUCacheTokens: 160, TransferSpeed: 500,
	})
	e.FollowOffloaded(func(key uint64) { kept[key] = true }, func(key uint64) { delete(kept, key); dropped++ })
	now := time.Duration(0)
	serve := func(document uint64) (ttft time.Duration, cached int) {
		j := &Job{Blocks: blocksOf(document, 25), Input: 101, Output: 1}
		at := now
		if err := e.Submit(now, j); err != nil {
			t.Fatal(err)
		}
		for _, ev := range finish(e) {
			if now = ev.At; ev.Kind == FirstToken {
				ttft = ev.At - at
			}
		}
		return ttft, j.Cached
	}
	cold, _ := serve(1)
	serve(2)
	if len(kept) == 0 || e.Stats().LoadedTokens != 0 {
		t.Fatalf("%d blocks kept, %+v", len(kept), e.Stats())
	}
	back, cached := serve(1)
	loaded := e.Stats().LoadedTokens
	if cached != 100 || loaded == 0 || loaded > 100 {
		t.Errorf("%d tokens cached, %d of them from the host", cached, loaded)
	}
	if copied := time.Duration(float64(loaded) / 500 * 1e9); back < copied || back > copied+cold/10 || back >= cold*2 {
		t.Errorf("the first token took %v, the copy %v, without it %v", back, copied, cold)
	}
	for document := uint64(3); document < 12; document++ {
		serve(document)
	}
	if len(kept) > 40 || dropped == 0 {
		t.Errorf("%d blocks kept, %d dropped", len(kept), dropped)
	}
	if _, cached := serve(1); cached != 0 {
		t.Errorf("%d tokens of what was dropped", cached)
	}
}

// Others are computed while a prompt waits for its copy, also those that come meanwhile.
func TestCopiesDoNotHoldUpOthers(t *testing.T) {
	profile := small
	profile.Chunk = 1024
	e := newTestEngine(t, EngineOptions{Profile: profile, BlockSize: 4, CacheTokens: 240, CPUCacheTokens: 4000, TransferSpeed: 100})
	first := map[*Job]time.Duration{}
	run := func(until time.Duration) (last time.Duration) {
		for next, ok := e.Next(); ok && next <= until; next, ok = e.Next() {
			last = next
			for _, ev := range e.Step(next) {
				if ev.Kind == FirstToken {
					first[ev.Job] = ev.At
				}
			}
		}
		return last
	}
	now := time.Duration(0)
	for document := range uint64(4) {
		if err := e.Submit(now, &Job{Blocks: blocksOf(document, 25), Input: 101, Output: 1}); err != nil {
			t.Fatal(err)
		}
		now = run(1 << 60)
	}
	offloaded := &Job{Blocks: blocksOf(0, 25), Input: 101, Output: 1}
	other := &Job{Input: 8, Output: 3}
	if err := e.Submit(now, offloaded); err != nil {
		t.Fatal(err)
	}
	at := now + 50*time.Millisecond
	run(at)
	if err := e.Submit(at, other); err != nil {
		t.Fatal(err)
	}
	run(1 << 60)
	if took := first[other] - at; took <= 0 || took > 30*time.Millisecond {
		t.Errorf("the other waited %v", took)
	}
	if took := first[offloaded] - now; took < 900*time.Millisecond || took > 1200*time.Millisecond {
		t.Errorf("the copy took %v, want about a second", took)
	}
}
