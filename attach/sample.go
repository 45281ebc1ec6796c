package attach

import (
	"slices"
	"strings"
)

// sample is packaging/pointsman.yaml without its comments. An installation puts that file
// where there is no configuration.
var sample = strings.Split(`pools:
  llama:
    models: [my-llama, meta-llama/Llama-3.1-8B-Instruct]
    replicas:
      r1: {address: 127.0.0.1:8001}
      r2: {address: 127.0.0.1:8002}`, "\n")

// Configured reports whether somebody has written pointsman.yaml: it is neither missing nor
// the installed sample, whatever its comments say. Attaching replaces the sample.
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
