package listen

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBurstLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := slog.New(slog.NewTextHandler(&out, nil))
		var b BurstLog
		for range 2_500 {
			b.Warn(l, "x")
			time.Sleep(time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || strings.Contains(lines[0], "suppressed") || !strings.Contains(lines[1], "suppressed=999") || !strings.Contains(lines[2], "suppressed=999") {
			t.Errorf("log:\n%s", out.String())
		}
	})
}
