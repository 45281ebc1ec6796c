package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbage(t *testing.T) {
	for alive, want := range map[uint64]int{0: 800, 8 << 20: 800, 16 << 20: 400, 30 << 20: 200, 64 << 20: 100, 1 << 40: 100} {
		if got := garbage(alive); got != want {
			t.Errorf("%d MiB alive: %d%%, want %d%%", alive>>20, got, want)
		}
	}
}

// The collector follows what is alive, both ways.
func TestSparingly(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	sparingly()
	// Read, and not set and put back, which could undo what is set meanwhile.
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	// What servers of earlier tests hold is free some ten seconds after them.
	await := func(what string, ok func(percent uint64) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			runtime.GC()
			metrics.Read(percent)
			p := percent[0].Value.Uint64()
			if ok(p) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d%%", what, p)
			}
		}
	}
	much := make([][]byte, 96)
	for i := range much {
		much[i] = make([]byte, 1<<20)
	}
	await("much is alive", func(p uint64) bool { return p == 100 })
	runtime.KeepAlive(much)
	much = nil
	await("little is alive", func(p uint64) bool { return p > 100 })
}
