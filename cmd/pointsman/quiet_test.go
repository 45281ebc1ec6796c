package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The log is silent before the library of the metrics starts, which writes to it on a
// kernel without pressure figures.
func TestQuietBeforeLibraries(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ours := strings.Index(string(out), "init pointsman/quiet @")
	library := strings.Index(string(out), "init github.com/VictoriaMetrics/metrics @")
	if ours < 0 || library < ours {
		t.Errorf("quiet at %d, metrics at %d of\n%s", ours, library, out)
	}
}
