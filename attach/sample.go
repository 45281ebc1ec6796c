package attach

import (
	"slices"
	"strings"
)

// sample is what packaging/pointsman.yaml says, which an installation puts where there
// is no configuration: the lines that are no comments.
var sample = strings.Split(`pools:
  llama:
    models: [my-llama, meta-llama/Llama-3.1-8B-Instruct]
    replicas:
      r1: {address: 127.0.0.1:8001}
      r2: {address: 127.0.0.1:8002}`, "\n")

// Configured reports whether the text of pointsman.yaml is somebody's: neither missing
// nor the sample that was installed, whatever its comments say. Attaching replaces
// that one.
func Configured(text []byte) bool {
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \t\r\n")
		if bare := strings.TrimSpace(line); bare != "" && bare[0] != '#' {
			lines = append(lines, line)
		}
	}
	return text != nil && !slices.Equal(lines, sample)
}
