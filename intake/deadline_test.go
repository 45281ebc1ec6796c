package intake

import (
	"testing"
	"time"
)

func TestParseDeadline(t *testing.T) {
	now := time.Minute
	day := time.Unix(1_700_000_060, 0)
	calendar := func() time.Time { return day }
	for in, want := range map[string]time.Duration{
		"": 0, "soon": 0, "NaN": 0, "1e300": 0, "2": 62 * time.Second, "0.5": 60500 * time.Millisecond,
		"800ms": 60800 * time.Millisecond, "2m": 3 * time.Minute, "-5": now, "-5s": now,
		"1700000090": 90 * time.Second, "1700000090500": 90500 * time.Millisecond, "1600000000": 1,
		"2023-11-14T22:13:30Z": 10 * time.Second, "2023-11-14t22:13:30z": 10 * time.Second,
		"99999999999999999999999999999999999999999": 0,
	} {
		if got := parseDeadline([]byte(in), now, calendar); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	if got := parseDeadline([]byte("1700000090"), now, nil); got != 0 {
		t.Errorf("without a calendar: %v", got)
	}
	// The clock of the calendar is set, as when a machine has found the time after its
	// start.
	day = day.Add(-2 * time.Hour)
	if got, want := parseDeadline([]byte("1700000090"), now, calendar), 2*time.Hour+90*time.Second; got != want {
		t.Errorf("after the clock was set: %v, want %v", got, want)
	}
}

func FuzzParseDeadline(f *testing.F) {
	for _, s := range []string{"2.5", "800ms", "1700000090", "2023-11-14T22:13:30Z", "-1h", "1e99"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		if d := parseDeadline(v, time.Hour, time.Now); d < 0 {
			t.Errorf("%q: %v", v, d)
		}
	})
}
