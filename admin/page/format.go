package page

import (
	"fmt"
	"math"
	"strconv"
)

// none stands where there is nothing to show.
const none = "–"

// count writes a whole number with its thousands apart, and large ones rounded.
func count[T int | int64 | uint64](n T) string {
	if v := float64(n); v >= 1e7 || v <= -1e7 {
		return short(v)
	}
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// short writes a number with three digits and k, M or G.
func short(v float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if math.Abs(v) >= u.size*.9995 {
			return digits(v/u.size) + u.unit
		}
	}
	return digits(v)
}

// digits writes about three digits.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1g", v)
}

// plural writes a number of things.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return count(n) + " " + thing
}

// seconds writes a time of waiting.
func seconds(v float64) string {
	switch {
	case v < 0 || math.IsNaN(v):
		return none
	case v < 0.0005:
		return "0 s"
	case v < 0.9995:
		return fmt.Sprintf("%.0f ms", v*1e3)
	case v < 9.995:
		return fmt.Sprintf("%.1f s", v)
	case v < 119.5:
		return fmt.Sprintf("%.0f s", v)
	case v < 7199:
		return fmt.Sprintf("%.0f min", v/60)
	case v < 172800:
		return fmt.Sprintf("%.0f h", v/3600)
	}
	return fmt.Sprintf("%.0f d", v/86400)
}

// age writes how long ago something was.
func age(v float64) string {
	if v < 0 {
		return "never"
	}
	return seconds(v)
}

// percent writes a share; negative = not known.
func percent(v float64) string {
	if v < 0 || math.IsNaN(v) {
		return none
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// figure writes a term of a score as `pointsman explain` does: whole from 1000 on,
// with four digits below. What would need an exponent is about 0.
func figure(v float64) string {
	switch size := math.Abs(v); {
	case size >= 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size > 0 && size < 1e-4:
		return "≈0"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
