package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	mostGarbage = 800      // percent of what is alive that may pile up
	spare       = 64 << 20 // bytes; beyond that, no more than what is alive
)

// sparingly keeps the collector from running all the time while little is
// alive, and garbage from piling up when much is: thousands of requests that
// are held. GOGC and GOMEMLIMIT still win.
func sparingly() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(mostGarbage)
	now := mostGarbage
	var collected func(struct{})
	again := func() { runtime.AddCleanup(new([64]byte), collected, struct{}{}) }
	collected = func(struct{}) { // after each collection
		if p := garbage(alive()); p != now {
			debug.SetGCPercent(p)
			now = p
		}
		again()
	}
	again()
}

// garbage is the percentage of what is alive that may pile up, in steps, since
// each change stops the world.
func garbage(alive uint64) int {
	p := min(max(spare*100/max(alive, 1), 100), mostGarbage)
	return int(p - p%50)
}

// alive is what the collector found in its last run, in bytes.
func alive() (sum uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(s)
	for i := range s {
		if s[i].Value.Kind() == metrics.KindUint64 {
			sum += s[i].Value.Uint64()
		}
	}
	return sum
}
