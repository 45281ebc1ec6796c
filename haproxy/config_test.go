package haproxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	text := "# head\nglobal\r\n  chroot /x # why\n\nfrontend fe\n\tuse_backend b if { path_beg \"/v1/ #\" } # c\n  new-keyword 'a \\ b' c\\ d \\# \"\"\nbackend b"
	var got []string
	for _, s := range ParseConfig([]byte(text)) {
		got = append(got, fmt.Sprintf("%d %s/%s %q", s.Line, s.Section, s.Name, s.Words))
		if !strings.HasPrefix(strings.TrimLeft(text[s.From:], " \t"), s.Words[0]) {
			t.Errorf("line %d does not begin at %d", s.Line, s.From)
		}
	}
	want := []string{
		`2 global/ ["global"]`,
		`3 global/ ["chroot" "/x"]`,
		`5 frontend/fe ["frontend" "fe"]`,
		`6 frontend/fe ["use_backend" "b" "if" "{" "path_beg" "/v1/ #" "}"]`,
		`7 frontend/fe ["new-keyword" "a \\ b" "c d" "#" ""]`,
		`8 backend/b ["backend" "b"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// FuzzParseConfig: any text is read; each statement is on the line that it says.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("global\n chroot\n\n\"a b\\\nfrontend 'x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bytes.Split(text, []byte("\n"))
		for _, s := range ParseConfig(text) {
			if len(s.Words) == 0 || !bytes.HasPrefix(text[s.From:], lines[s.Line-1]) {
				t.Fatalf("%+v", s)
			}
			if !slices.Equal(splitWords(lines[s.Line-1]), s.Words) {
				t.Fatalf("line %d is read as %q", s.Line, s.Words)
			}
		}
	})
}
