package nginx

import (
	"bytes"
	"os"
	"testing"
)

// The sample that an installation puts where there is no configuration is replaced as if
// there were none.
func TestSampleIsReplaced(t *testing.T) {
	dir := t.TempDir()
	o := options(lay(t, "api-keys", dir), dir)
	without, err := Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../packaging/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	put(t, o.Config, string(text))
	with, err := Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	last := len(with.Changes) - 1
	if c := with.Changes[last]; c.Path != o.Config || !c.Changes() || !bytes.Equal(c.After, without.Changes[last].After) || len(with.Notes) != len(without.Notes)+1 {
		t.Errorf("%s becomes\n%s", c.Path, c.After)
	}
}
