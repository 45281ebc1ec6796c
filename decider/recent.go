package decider

import "time"

// perSecond counts events over about the last second: those of the current second
// of the clock, and the share of the previous one that the last second covers.
type perSecond struct {
	second    int64
	now, last int
}

func (m *perSecond) add(t time.Duration) {
	m.roll(t)
	m.now++
}

// rate is the number of events in the second before t.
func (m *perSecond) rate(t time.Duration) float64 {
	m.roll(t)
	into := float64(t%time.Second) / float64(time.Second)
	return float64(m.now) + float64(m.last)*(1-into)
}

func (m *perSecond) roll(t time.Duration) {
	second := int64(t / time.Second)
	switch second - m.second {
	case 0:
		return
	case 1:
		m.last = m.now
	default:
		m.last = 0
	}
	m.now, m.second = 0, second
}

// latency is a moving mean of times to first byte, over about the last eight.
type latency struct {
	mean time.Duration
	at   time.Duration // of the last one
	some bool
}

// latencyKept is how long a mean without new samples counts. Without a limit, a
// replica that was slow once would never be tried again.
const latencyKept = 30 * time.Second

func (l *latency) add(ttft, now time.Duration) {
	if !l.known(now) {
		l.mean = ttft
	}
	l.mean += (ttft - l.mean) / 8
	l.at, l.some = now, true
}

func (l *latency) known(now time.Duration) bool { return l.some && now-l.at < latencyKept }

// TTFT is the mean time to first byte of the replica's last requests. It
// reports false when there was none in the last 30 seconds.
func (r *Replica) TTFT(now time.Duration) (mean time.Duration, ok bool) {
	return r.ttft.mean, r.ttft.known(now)
}
