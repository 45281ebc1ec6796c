package agent

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent is how much garbage may pile up, in percent of the live heap,
	// where nothing else bounds it.
	gcPercent = 150
	// gcPercentLimited is the same where a memory limit makes the collector run
	// earlier when memory becomes scarce.
	gcPercentLimited = 400
)

// tuneGC sets what the environment leaves open: GOGC and GOMEMLIMIT override it. Without
// GOMEMLIMIT the memory limit is 90 % of the memory limit of the process's cgroup, if there
// is one.
//
// It returns the limit in force, in bytes, and its origin; 0 for none.
func tuneGC(env func(string) string) (limit int64, from string) {
	percent, limit := gcSettings(env, cgroupLimit(os.DirFS("/")))
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	if percent > 0 {
		debug.SetGCPercent(percent)
	}
	switch {
	case limit > 0:
		return limit, "90 % of the cgroup's"
	case env("GOMEMLIMIT") != "" && env("GOMEMLIMIT") != "off":
		return debug.SetMemoryLimit(-1), "GOMEMLIMIT"
	}
	return 0, ""
}

// gcSettings are the percentage and the memory limit in bytes to set; 0 = unchanged. cgroup
// is the memory that the process may use, 0 = unbounded.
func gcSettings(env func(string) string, cgroup int64) (percent int, limit int64) {
	limited := env("GOMEMLIMIT") != "" && env("GOMEMLIMIT") != "off"
	if env("GOMEMLIMIT") == "" && cgroup > 0 {
		limit, limited = cgroup/10*9, true
	}
	switch {
	case env("GOGC") != "":
		return 0, limit
	case limited:
		return gcPercentLimited, limit
	}
	return gcPercent, limit
}

// cgroupLimit is the memory that the cgroup of the process may use, in bytes; 0
// where it is unbounded or not known. root is the root of the file system.
func cgroupLimit(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	_, own, ok := strings.Cut(string(text), "0::/")
	if !ok {
		return 0 // version 1 of cgroups
	}
	limit := int64(math.MaxInt64)
	for folder := path.Clean(strings.TrimSpace(own)); ; folder = path.Dir(folder) {
		if n := memoryMax(root, folder); n > 0 {
			limit = min(limit, n)
		}
		if folder == "." {
			break
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// memoryMax is the limit of one cgroup, 0 for none.
func memoryMax(root fs.FS, folder string) int64 {
	text, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", folder, "memory.max"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // or "max"
	return n
}
