package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestCheckLive sends a request through each proxy, for a model that
// is served and for one that is not.
func TestCheckLive(t *testing.T) {
	onEach(t, releases(t), func(t *testing.T, r release) {
		s, _ := replicas(t, r, 2, "least_requests")
		s.start()
		live := func(more ...string) (string, error) {
			args := append([]string{"check", "--live", fmt.Sprintf("http://%s/v1/chat/completions", s.front), "--admin", "http://" + s.agent.admin + "/"}, more...)
			out, err := exec.Command(binary, args...).CombinedOutput()
			return string(out), err
		}
		out, err := live()
		if err != nil || !strings.HasSuffix(out, "\nasked, decided, heard\n") || !strings.Contains(out, "asked             yes, for pool "+pool) ||
			s.can.runtime && !strings.Contains(out, "first byte heard  after ") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := live("--model", "nobody"); err == nil || !strings.Contains(out, "decided           NO: no pool serves the model") {
			t.Errorf("an unknown model: %v\n%s", err, out)
		}
		s.untroubled()
	})
}
