package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/record"
)

// /record says why it does not record: without a recorder, for a time that is none or
// too long, and while too many others read.
func TestRecordRefuses(t *testing.T) {
	b := newBench(t)
	if status, text := b.do("POST", "/record?for=1m", "", "Content-Type: application/json"); status != 404 {
		t.Errorf("without a recorder: %d %s", status, text)
	}
	if status, _ := b.do("GET", "/record?for=1m", ""); status != 405 {
		t.Errorf("by GET: %d", status)
	}
	b.server.Recorder = record.New(b.intake.Decider(), time.Now(), metrics.NewSet())
	for _, query := range []string{"", "?for=", "?for=soon", "?for=0s", "?for=-1h", "?for=169h", "?for=10", "?for=99999999999h", "?FOR=1h"} {
		if status, text := b.do("POST", "/record"+query, "", "Content-Type: application/json"); status != 400 || text != "want for=DURATION of up to 168h\n" {
			t.Errorf("/record%s: %d %q", query, status, text)
		}
	}
	for range record.MaxStreams {
		if _, err := b.server.Recorder.Stream(); err != nil {
			t.Fatal(err)
		}
	}
	if status, text := b.do("POST", "/record?for=1m", "", "Content-Type: application/json"); status != 429 || text != "too many recordings at the same time\n" {
		t.Errorf("one too many: %d %q", status, text)
	}
	b.server.Recorder.Close()
	if status, text := b.do("POST", "/record?for=1ms", "", "Content-Type: application/json"); status != 200 || !strings.HasPrefix(text, `{"recorder":"pointsman"`) {
		t.Errorf("with room again: %d %q", status, text)
	}
}
