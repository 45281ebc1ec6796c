package stand

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat, the same on all Linux machines.
const tick = 10 * time.Millisecond

// CPU is the processor time of processes and all their descendants, including those that
// have ended and were waited for.
func CPU(processes ...*Process) (time.Duration, error) {
	times, parents := map[int]time.Duration{}, map[int]int{}
	pages, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			continue // it has ended
		}
		pid, parent, taken, err := parseStat(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", page, err)
		}
		times[pid], parents[pid] = taken, parent
	}
	var sum time.Duration
	for pid, taken := range times {
		if descends(pid, parents, processes) {
			sum += taken
		}
	}
	return sum, nil
}

// descends reports whether pid is one of the processes or below it.
func descends(pid int, parents map[int]int, processes []*Process) bool {
	for depth := 0; pid > 1 && depth < 64; depth++ {
		for _, q := range processes {
			if pid == q.cmd.Process.Pid {
				return true
			}
		}
		pid = parents[pid]
	}
	return false
}

// parseStat reads a line of /proc/PID/stat: the process, its parent, and the time
// that it and its children that have ended took. The name in parentheses may hold
// anything.
func parseStat(line string) (pid, parent int, taken time.Duration, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, 0, 0, fmt.Errorf("no name in %.60q", line)
	}
	f := strings.Fields(line[end+1:]) // from the third field on
	if len(f) < 15 {
		return 0, 0, 0, fmt.Errorf("%d fields", len(f)+2)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line[:open])); err != nil {
		return 0, 0, 0, err
	}
	if parent, err = strconv.Atoi(f[1]); err != nil {
		return 0, 0, 0, err
	}
	for _, field := range f[11:15] { // user, system, and those of children
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, 0, err
		}
		taken += time.Duration(n) * tick
	}
	return pid, parent, taken, nil
}
