package demo

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// showProgress shows how far the workload is, until done.
func showProgress(out *os.File, t *traffic, done <-chan struct{}) {
	total := len(t.calls)
	live := interactive(out)
	pause := 2 * time.Second
	if live {
		pause = 100 * time.Millisecond
	}
	start := time.Now()
	line := func() string {
		n := int(t.done.Load())
		const width = 30
		full := min(width, width*n/total)
		bar := strings.Repeat("█", full) + strings.Repeat("░", width-full)
		return fmt.Sprintf("%s %d/%d requests, %d in flight, %.0f s", bar, n, total, t.running.Load(), time.Since(start).Seconds())
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if live {
				fmt.Fprintf(out, "\r\x1b[K%s", line())
			} else {
				fmt.Fprintln(out, line())
			}
		case <-done:
			if live {
				fmt.Fprintf(out, "\r\x1b[K")
			}
			fmt.Fprintln(out, line())
			return
		}
	}
}

// interactive reports whether progress may be redrawn in place.
func interactive(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
