package intake

import (
	"strconv"
	"strings"
	"time"
)

// parseDeadline reads the value of a deadline header: a time from now in seconds (2.5) or
// with a unit (800ms, 2m), or a time of the calendar in seconds or milliseconds since 1970
// or in the form of RFC 3339. A time in the past is the earliest deadline; a value that
// cannot be parsed is none (0). now is by the pool's clock. calendar, unless nil, returns
// the same moment by the calendar; it is called only now, since that clock may be set at
// any time.
func parseDeadline(v []byte, now time.Duration, calendar func() time.Time) time.Duration {
	if len(v) == 0 || len(v) > 40 {
		return 0
	}
	absolute := func(t time.Time) time.Duration {
		if calendar == nil {
			return 0
		}
		return max(now+t.Sub(calendar().Round(0)), 1)
	}
	if x, err := strconv.ParseFloat(string(v), 64); err == nil {
		switch {
		case x != x || x > 1e14:
			return 0
		case x >= 1e11:
			return absolute(time.UnixMilli(int64(x)))
		case x >= 1e8:
			return absolute(time.UnixMilli(int64(x * 1000)))
		}
		return max(now+time.Duration(max(x, 0)*float64(time.Second)), 1)
	}
	s := string(v)
	if d, err := time.ParseDuration(s); err == nil {
		return max(now+max(d, 0), 1)
	}
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(s)); err == nil {
		return absolute(t)
	}
	return 0
}
