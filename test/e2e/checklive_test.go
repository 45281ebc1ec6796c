package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// TestCheckLive sends a request through each proxy, for a model that
// is served and for one that is not.
func TestCheckLive(t *testing.T) {
	rig.OnEach(t, rig.Releases(t), func(t *testing.T, r rig.Release) {
		s, _ := rig.Replicas(t, r, 2, "least_requests")
		s.Start()
		live := func(more ...string) (string, error) {
			args := append([]string{"check", "--live", fmt.Sprintf("http://%s/v1/chat/completions", s.Front), "--admin", "http://" + s.Agent.Admin + "/"}, more...)
			out, err := exec.Command(rig.Binary, args...).CombinedOutput()
			return string(out), err
		}
		out, err := live()
		if err != nil || !strings.HasSuffix(out, "\nasked, decided, reported\n") || !strings.Contains(out, "asked             yes, for pool "+rig.Pool) ||
			s.Can.Runtime && !strings.Contains(out, "first byte        after ") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := live("--model", "nobody"); err == nil || !strings.Contains(out, "decided           NO: no pool serves the model") {
			t.Errorf("an unknown model: %v\n%s", err, out)
		}
		s.Untroubled()
	})
}
