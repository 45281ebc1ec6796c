package stand

import (
	"strings"
	"testing"
	"time"

	"pointsman/templates"
)

// TestWithoutAgent: the plain proxy asks nobody and reports to nobody.
func TestWithoutAgent(t *testing.T) {
	for _, version := range []templates.Version{{Major: 2, Minor: 6}, {Major: 3, Minor: 2}} {
		pool := templates.Pool{Name: "llama", HealthPath: "none", Replicas: []templates.Replica{{Name: "r1", Address: "127.0.0.1:8000"}}}
		files, err := templates.RenderHAProxy(templates.HAProxy{
			Version: version, Bind: "127.0.0.1:8080", AgentAddress: "unix:///spoe.sock",
			FeedAddress: "127.0.0.1:9901", SPOEConf: templates.SPOEFile, Pools: []templates.Pool{pool},
			Bufsize: 256 << 10, ProcessingTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Name != templates.ConfigFile {
				continue
			}
			var uses []string
			for line := range strings.Lines(WithoutAgent(f.Text)) {
				if l := strings.TrimSpace(line); strings.HasPrefix(l, "filter ") || strings.HasPrefix(l, "http-request send-spoe-group") ||
					strings.HasPrefix(l, "log ring@") || strings.HasPrefix(l, "log 127.0.0.1:9901") {
					uses = append(uses, l)
				}
			}
			if len(uses) > 0 {
				t.Errorf("HAProxy %v: %q", version, uses)
			}
		}
	}
}
