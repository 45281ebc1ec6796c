package rig

import (
	"regexp"
	"strings"
	"testing"
)

// head is the line before each part that `render --attach` prints.
var head = regexp.MustCompile(`(?m)^# ===== paste into your section (.+?)( \(optional\))? =====\n`)

// paste puts the parts of printed into a configuration, as their heads say:
// above each mark of that section.
func paste(t testing.TB, conf, printed string, optional bool) string {
	t.Helper()
	heads := head.FindAllStringSubmatchIndex(printed, -1)
	if len(heads) == 0 {
		t.Fatalf("nothing to paste:\n%s", printed)
	}
	for i, at := range heads {
		end := len(printed)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		if at[4] >= 0 && !optional {
			continue
		}
		mark := "    #paste " + printed[at[2]:at[3]] + "\n"
		if !strings.Contains(conf, mark) {
			t.Fatalf("no section %q to paste into", printed[at[2]:at[3]])
		}
		conf = strings.ReplaceAll(conf, mark, printed[at[1]:end]+"\n"+mark)
	}
	return conf
}
