package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size, written as 65536, 64KiB, 1MiB or 2GiB.
type Bytes int

var errUnit = errors.New("not a value with a known unit")

func parseBytes(s string) (Bytes, error) {
	unit := uint64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > math.MaxInt/unit {
		return 0, errUnit
	}
	return Bytes(n * unit), nil
}

// parseDuration wants a unit even on zero, and nothing negative.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.Trim(s, "+-0123456789.") == "" {
		return 0, errUnit
	}
	return d, nil
}

// String is the shortest exact form, such as 128KiB.
func (b Bytes) String() string {
	units := []string{"", "KiB", "MiB", "GiB"}
	n, i := int(b), 0
	for ; n != 0 && n%1024 == 0 && i < len(units)-1; i++ {
		n /= 1024
	}
	return strconv.Itoa(n) + units[i]
}
