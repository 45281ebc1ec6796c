package attach

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/test/proxies"
)

// Whatever the line ends are, Strip returns what was there before Apply.
func TestStripUndoesApply(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var b strings.Builder
		n := 1 + r.IntN(8)
		for i := range n {
			b.WriteString([]string{"", "  a", "b # pointsman", "\tserver x"}[r.IntN(4)])
			if i < n-1 || r.IntN(2) == 0 {
				b.WriteString([]string{"\n", "\r\n"}[r.IntN(2)])
			}
		}
		text := b.String()
		lines := len(splitLines([]byte(text)))
		var edits []Edit
		for at := 1; at <= lines+1; at++ {
			if r.IntN(3) == 0 {
				old := min(r.IntN(3), lines+1-at)
				edits = append(edits, Edit{at, old, []Line{{"x", "why"}, {"y", ""}, {"", "comment"}, {"\t", "comment"}}})
				at += max(0, old-1)
				if old > 0 {
					at++
				}
			}
		}
		got, err := Apply([]byte(text), edits)
		if err != nil {
			t.Fatal(err)
		}
		if len(edits) > 0 && !Attached(got) {
			t.Fatalf("%q is not seen as attached", got)
		}
		if back := Strip(got); string(back) != text {
			t.Fatalf("%+v\nbefore   %q\nattached %q\nafter    %q", edits, text, got, back)
		}
	}
}

func TestApplyKeepsLineEnds(t *testing.T) {
	got, err := Apply([]byte("a\r\nb"), []Edit{{2, 1, []Line{{"B", "better"}}}, {3, 0, []Line{{"c", "new"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "a\r\n# pointsman-attach keeps: b\r\nB # pointsman-attach: better\r\nc # pointsman-attach: new"
	if string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, bad := range []Edit{{0, 0, nil}, {4, 0, nil}, {2, 2, nil}, {1, 0, []Line{{"a\nb", ""}}}} {
		if _, err := Apply([]byte("a\r\nb"), []Edit{bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// patch applies what Diff returns.
func TestDiff(t *testing.T) {
	proxies.Tool(t, "patch")
	r := rand.New(rand.NewPCG(3, 4))
	text := func() string {
		var b strings.Builder
		for range r.IntN(40) {
			b.WriteString(string(rune('a'+r.IntN(4))) + "\n")
		}
		if r.IntN(3) == 0 {
			b.WriteString("end")
		}
		return b.String()
	}
	for range 150 {
		before := text()
		after := text()
		if r.IntN(2) == 0 && len(before) > 0 {
			at := r.IntN(len(before))
			after = before[:at] + "new\n" + before[at:]
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		diff := Diff(path, []byte(before), []byte(after))
		if (diff == "") != (before == after) {
			t.Fatalf("%q to %q gives %q", before, after, diff)
		}
		cmd := exec.Command("patch", "-s", "-d", "/", "-p1", "-r", "-")
		cmd.Stdin = strings.NewReader(diff)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, diff)
		}
		if got, _ := os.ReadFile(path); string(got) != after {
			t.Fatalf("%q, want %q by\n%s", got, after, diff)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.cfg"), filepath.Join(dir, "link.cfg")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.cfg", link); err != nil {
		t.Fatal(err)
	}
	c, err := Read(link)
	if err != nil {
		t.Fatal(err)
	}
	c.After = []byte("new")
	own := Change{Path: filepath.Join(dir, "sub", "own.cfg"), After: []byte("ours"), Mode: 0o600}
	backup := filepath.Join(dir, "backup")

	// A failure restores everything.
	if _, err := Write([]Change{c, own}, backup, "1", func() error { return errors.New("refused") }); err == nil {
		t.Fatal("the error of verify is lost")
	}
	if text, _ := os.ReadFile(file); string(text) != "old" {
		t.Errorf("not restored: %q", text)
	}
	if _, err := os.Stat(own.Path); err == nil {
		t.Error("the new file stays")
	}

	copies, err := Write([]Change{c, own}, backup, "1", nil)
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	if text, _ := os.ReadFile(copies[0]); string(text) != "old" {
		t.Errorf("backup %q", text)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is a file now")
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 {
		t.Error("mode", info.Mode())
	}
	if text, _ := os.ReadFile(file); string(text) != "new" {
		t.Errorf("%q", text)
	}

	// It was read before somebody else changed it.
	if _, err := Write([]Change{c}, backup, "2", nil); err == nil || !strings.Contains(err.Error(), "meanwhile") {
		t.Error("overwrites a change:", err)
	}
}

// What an installation puts where there is no configuration is nobody's, until a line
// of it is changed.
func TestConfigured(t *testing.T) {
	text, err := os.ReadFile("../packaging/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "127.0.0.1:8001", "127.0.0.1:8003", 1)
	for text, want := range map[string]bool{
		string(text): false, string(text) + "# a comment\n": false, other: true, string(text) + "lease: 5m\n": true, "": true,
	} {
		if got := Configured([]byte(text)); got != want {
			t.Errorf("%v, want %v, for\n%s", got, want, text)
		}
	}
	if Configured(nil) {
		t.Error("a file that does not exist is somebody's")
	}
}
