package agent

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestGCSettings(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		gogc, memLimit string
		cgroup         int64
		percent        int
		limit          int64
	}{
		{"", "", 0, gcPercent, 0},
		{"", "", 10 * gib, gcPercentLimited, 9 * gib},
		{"", "1GiB", 0, gcPercentLimited, 0},
		{"", "1GiB", 10 * gib, gcPercentLimited, 0},
		{"", "off", 10 * gib, gcPercent, 0},
		{"100", "", 0, 0, 0},
		{"off", "", 10 * gib, 0, 9 * gib},
		{"50", "1GiB", 10 * gib, 0, 0},
	} {
		env := map[string]string{"GOGC": c.gogc, "GOMEMLIMIT": c.memLimit}
		percent, limit := gcSettings(func(name string) string { return env[name] }, c.cgroup)
		if percent != c.percent || limit != c.limit {
			t.Errorf("%+v: %d %% and %d bytes", c, percent, limit)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	own := file("0::/system.slice/pointsman.service\n")
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"not Linux":        {fstest.MapFS{}, 0},
		"version 1":        {fstest.MapFS{"proc/self/cgroup": file("4:memory:/x\n")}, 0},
		"unbounded":        {fstest.MapFS{"proc/self/cgroup": own, "sys/fs/cgroup/system.slice/pointsman.service/memory.max": file("max\n")}, 0},
		"no controller":    {fstest.MapFS{"proc/self/cgroup": own}, 0},
		"its own":          {fstest.MapFS{"proc/self/cgroup": own, "sys/fs/cgroup/system.slice/pointsman.service/memory.max": file("1000\n"), "sys/fs/cgroup/system.slice/memory.max": file("2000\n")}, 1000},
		"that of a parent": {fstest.MapFS{"proc/self/cgroup": own, "sys/fs/cgroup/system.slice/pointsman.service/memory.max": file("max\n"), "sys/fs/cgroup/system.slice/memory.max": file("2000\n")}, 2000},
		"in a container":   {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("3000\n")}, 3000},
	} {
		if got := cgroupLimit(c.root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// More garbage may pile up before a collection where a memory limit bounds it.
func TestTuneGC(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) }()
	for memLimit, want := range map[string]int{"off": gcPercent, "1GiB": gcPercentLimited} {
		env := map[string]string{"GOMEMLIMIT": memLimit}
		tuneGC(func(name string) string { return env[name] })
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOMEMLIMIT=%s: %d %%, want %d", memLimit, got, want)
		}
	}
}
