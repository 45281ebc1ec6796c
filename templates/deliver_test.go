package templates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDeliver(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	files := []File{{"x.cfg", "\nglobal\n"}, {"y.cfg", "defaults\n"}}
	if err := Write(folder, files); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(filepath.Join(folder, f.Name)); err != nil || string(text) != f.Text {
			t.Errorf("%s: %q, %v", f.Name, text, err)
		}
	}
	if err := Write(filepath.Join(folder, "x.cfg"), files); err == nil {
		t.Error("wrote into a file")
	}
	var out strings.Builder
	Print(&out, files[:1], []Snippet{{Where: "global", Text: "a\n"}, {Where: "backend x", Text: "b\n", Optional: true}})
	want := "# ===== file x.cfg =====\nglobal\n\n# ===== paste into your section global =====\na\n\n# ===== paste into your section backend x (optional) =====\nb\n\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}
