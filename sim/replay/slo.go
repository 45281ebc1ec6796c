package replay

import (
	"fmt"
	"strings"
	"time"
)

// SLO is what users are promised: the first token within TTFT, and the others
// TPOT apart on average.
type SLO struct{ TTFT, TPOT time.Duration }

// DefaultSLO is the usual one for chat.
var DefaultSLO = SLO{2 * time.Second, 50 * time.Millisecond}

// reading is the SLO of Result.Good: answers as fast as people read.
var reading = SLO{5 * time.Second, 200 * time.Millisecond}

// ParseSLO reads an SLO in the form ttft=2s,tpot=50ms. What is absent has the
// default.
func ParseSLO(text string) (SLO, error) {
	s := DefaultSLO
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(value)
		switch {
		case err == nil && d > 0 && name == "ttft":
			s.TTFT = d
		case err == nil && d > 0 && name == "tpot":
			s.TPOT = d
		default:
			return SLO{}, fmt.Errorf("slo: %q, want ttft=2s,tpot=50ms", text)
		}
	}
	return s, nil
}

// String is the form that ParseSLO reads.
func (s SLO) String() string { return fmt.Sprintf("ttft=%v,tpot=%v", s.TTFT, s.TPOT) }

// meets reports whether f was served within the SLO.
func (s SLO) meets(f *flight) bool {
	return f.first-f.at <= s.TTFT && f.done-f.first <= s.TPOT*time.Duration(f.request.Output)
}
