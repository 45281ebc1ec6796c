package haproxy

import "time"

// lateness estimates the delay of one ring's lines from the stamps of HAProxy's clock: how
// much later one comes than the fastest of the last minutes. The clocks need not agree, and
// either may be set: a difference beyond any delay is that of the clocks. It belongs to one
// goroutine.
type lateness struct {
	least, before time.Duration // the smallest difference of this window, and of the last
	since         time.Duration // when the window began
	some          bool
}

const (
	// latenessWindow is how long a smallest difference counts, for clocks that drift.
	latenessWindow = time.Minute
	// mostLate is longer than the delay of any line to a running agent.
	mostLate = 5 * time.Second
)

// of returns the delay of a line that came now, with HAProxy's stamp.
func (l *lateness) of(stamp, now time.Duration) time.Duration {
	d := now - stamp
	if !l.some || d-min(l.least, l.before) > mostLate {
		*l = lateness{least: d, before: d, since: now, some: true}
	}
	if now-l.since > latenessWindow {
		l.before, l.least, l.since = l.least, d, now
	}
	l.least = min(l.least, d)
	return d - min(l.least, l.before)
}
