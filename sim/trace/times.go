package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// stamp is the time of a request: a number in a unit that only the whole trace
// shows, or a date.
type stamp struct {
	value float64 // of a date, milliseconds since 1970
	date  bool
	known bool
}

// dates are the forms of dates, most of them without a zone.
var dates = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999 MST", "02/Jan/2006:15:04:05 -0700",
}

// maxStamp is more than any time in nanoseconds since 1970.
const maxStamp = 1e19

// UnmarshalJSON implements json.Unmarshaler.
func (s *stamp) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		return nil
	case float64:
		*s = stamp{value: v, known: true}
	case string:
		v = strings.TrimSpace(v)
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			*s = stamp{value: n, known: true}
			break
		}
		t, ok := parseDate(v)
		if !ok {
			return badTime(v)
		}
		*s = stamp{value: float64(t.UnixMicro()) / 1000, date: true, known: true}
	default:
		return badTime(string(data))
	}
	if math.IsNaN(s.value) || math.Abs(s.value) > maxStamp {
		return badTime(string(data))
	}
	return nil
}

// badTime is the error for a value that is not a time.
type badTime string

func (e badTime) Error() string {
	return fmt.Sprintf("time %.40q, want a number or a date such as 2026-11-22T05:00:00.123Z", string(e))
}

func parseDate(text string) (time.Time, bool) {
	for _, layout := range dates {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// A trace without dates in its times has them in milliseconds, as the Mooncake
// project, or in seconds: that many requests in a second are not real traffic but a sign
// of seconds taken for milliseconds.
const (
	tooManyPerSecond = 1000
	// tooManyWithFractions is the same for times with fractions, which milliseconds rarely
	// have.
	tooManyWithFractions = 200
	enoughToTell         = 20 // requests
)

// milliseconds converts the times of a trace to milliseconds. Numbers have the
// same unit in all of it.
func milliseconds(stamps []stamp) []float64 {
	least, most, n, fractions := math.Inf(1), math.Inf(-1), 0, false
	for _, s := range stamps {
		if s.date || !s.known {
			continue
		}
		n++
		least, most = min(least, s.value), max(most, s.value)
		fractions = fractions || s.value != math.Trunc(s.value)
	}
	unit := 1.0
	if n > 0 {
		unit = unitOf(least, most, n, fractions)
	}
	list := make([]float64, len(stamps))
	for i, s := range stamps {
		if list[i] = s.value; !s.date {
			list[i] *= unit
		}
	}
	return list
}

// unitOf is how many milliseconds the unit of n numbers is. Numbers that are large
// count from 1970.
func unitOf(least, most float64, n int, fractions bool) float64 {
	switch size := max(math.Abs(least), math.Abs(most)); {
	case size >= 1e17:
		return 1e-6
	case size >= 1e14:
		return 1e-3
	case size >= 1e11:
		return 1
	case size >= 1e9:
		return 1000
	}
	perSecond := float64(n) / ((most - least) / 1000) // if they are milliseconds
	if most > least && (perSecond > tooManyPerSecond && n >= enoughToTell || fractions && perSecond > tooManyWithFractions) {
		return 1000
	}
	return 1
}
