package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseProfile reads the name of a built-in profile and, after a colon, numbers
// that replace its own: 70b:prefill_rate=8000,chunk=2048.
func ParseProfile(spec string) (Profile, error) {
	name, numbers, custom := strings.Cut(spec, ":")
	p, err := ProfileByName(name)
	if err != nil || !custom {
		return p, err
	}
	fields := map[string]func(float64){
		"prefill_rate":    func(x float64) { p.PrefillRate = x },
		"chunk":           func(x float64) { p.Chunk = int(x) },
		"base_ms":         func(x float64) { p.Base = time.Duration(x * float64(time.Millisecond)) },
		"context_read_ns": func(x float64) { p.ContextRead = x },
		"attention_depth": func(x float64) { p.AttentionDepth = x },
		"max_running":     func(x float64) { p.MaxRunning = int(x) },
		"kv_bytes":        func(x float64) { p.KVBytes = int(x) },
	}
	for _, part := range strings.Split(numbers, ",") {
		key, value, _ := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(value, 64)
		if fields[key] == nil || err != nil {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			return p, fmt.Errorf("profile: %q, want a number for one of %s, as chunk=2048", part, strings.Join(names, ", "))
		}
		fields[key](x)
	}
	p.Name = spec
	return p, p.Validate()
}
