package rig

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Calendar is the clock of the calendar as one agent reads it: off by as much as the
// test says. The kernel has one such clock for all, and a program in Go reads it without
// the C library, so the agent is built with a package time that adds the difference. The
// clock that durations are measured by goes on.
type Calendar struct {
	t    testing.TB
	file *os.File
}

// overlay adds to the package time what reads the difference: nanoseconds in the memory
// of a file.
const overlay = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var calendarOff = func() *int64 {
	if name, ok := syscall.Getenv("` + calendarEnv + `"); ok {
		if fd, err := syscall.Open(name, syscall.O_RDWR, 0); err == nil {
			if m, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED); err == nil {
				return (*int64)(unsafe.Pointer(&m[0]))
			}
		}
	}
	return new(int64)
}()

func calendarNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	n := atomic.LoadInt64(calendarOff) + int64(nsec)
	sec += n / 1e9
	if n %= 1e9; n < 0 {
		sec, n = sec-1, n+1e9
	}
	return sec, int32(n), mono
}
`

const calendarEnv = "TEST_CALENDAR"

var calendarBuild sync.Once

// NewCalendar gives the agent, which is not started, a calendar of its own.
func NewCalendar(a *Agent) *Calendar {
	a.t.Helper()
	t, dir := a.t, filepath.Dir(Binary)
	a.Bin = filepath.Join(dir, "pointsman-calendar")
	calendarBuild.Do(func() { buildCalendar(t, dir, a.Bin) })
	file, err := os.Create(filepath.Join(t.TempDir(), "off"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	c := &Calendar{t, file}
	c.Set(0)
	a.Env = append(a.Env, calendarEnv+"="+file.Name())
	return c
}

// buildCalendar builds the agent whose calendar can be set.
func buildCalendar(t testing.TB, dir, bin string) {
	t.Helper()
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	try(err)
	src := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(src, "time.go"))
	try(err)
	const reads, instead = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()", "func Now() Time {\n\tsec, nsec, mono := calendarNow()"
	if strings.Count(string(text), reads) != 1 {
		t.Fatalf("the package time of %s reads the clock in another way", runtime.Version())
	}
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		try(os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	list := write("overlay.json", fmt.Sprintf(`{"Replace":{%q:%q,%q:%q}}`,
		filepath.Join(src, "time.go"), write("time.go", strings.Replace(string(text), reads, instead, 1)),
		filepath.Join(src, "calendar.go"), write("calendar.go", overlay)))
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", bin, "pointsman/cmd/pointsman").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// Set has the calendar be off by so much from now on.
func (c *Calendar) Set(off time.Duration) {
	c.t.Helper()
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off)), 0); err != nil {
		c.t.Fatal(err)
	}
}
