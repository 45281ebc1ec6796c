package demo

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/decider"
)

// sumChosen counts the decisions that named a replica.
func sumChosen(replicas []decider.ReplicaStatus) (n uint64) {
	for _, r := range replicas {
		n += r.Chosen
	}
	return n
}

// percentilesOf gives the percentiles in milliseconds.
func percentilesOf(d []time.Duration) Percentiles {
	if len(d) == 0 {
		return Percentiles{}
	}
	s := slices.Sorted(slices.Values(d))
	at := func(p float64) float64 {
		ms := s[int(p*float64(len(s)-1)+0.5)].Seconds() * 1e3
		return float64(int(ms*100+0.5)) / 100
	}
	return Percentiles{at(.5), at(.9), at(.99)}
}

// metric sums the samples of a name on a page of Prometheus metrics.
func metric(page, name string) (sum float64) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		f := strings.Fields(rest)
		if v, err := strconv.ParseFloat(f[len(f)-1], 64); err == nil {
			sum += v
		}
	}
	return sum
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
