package replay

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// showProgress returns when done is closed. Until then it draws a progress bar
// if the file is a terminal.
func showProgress(terminal *os.File, ended *atomic.Int64, total int64, done <-chan struct{}) {
	if terminal == nil || !isTerminal(terminal) {
		<-done
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	drawProgress(terminal, ended, total, tick.C, done)
}

func isTerminal(f *os.File) bool {
	stat, err := f.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}

// drawProgress draws the bar at each tick and removes it when done is closed.
func drawProgress(w io.Writer, ended *atomic.Int64, total int64, tick <-chan time.Time, done <-chan struct{}) {
	const width = 40
	for drawn := false; ; {
		select {
		case <-done:
			if drawn {
				fmt.Fprint(w, "\r\033[K")
			}
			return
		case <-tick:
			drawn = true
			n := ended.Load()
			fmt.Fprintf(w, "\r[%-*s] %3d %%", width, strings.Repeat("#", int(width*n/total)), 100*n/total)
		}
	}
}
