package nginx

import (
	"bytes"
	"os"
	"path/filepath"
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

// TestNotesServersThatAreNoReplicas: a server that came after pointsman.yaml was written.
func TestNotesServersThatAreNoReplicas(t *testing.T) {
	dir := t.TempDir()
	o := options(filepath.Join(dir, "nginx.conf"), dir)
	put(t, o.Main, "events {}\nhttp {\nupstream llm {\nserver 10.0.0.1:8000;\nserver 10.0.0.2:8000;\nserver 10.0.0.3:8000 backup;\n}\nserver { location /v1/ { proxy_pass http://llm; } }\n}\n")
	put(t, o.Config, "listen: {spoe: off, nginx: unix:///run/pointsman/nginx.sock}\npools: {llm: {replicas: {r1: {address: 10.0.0.1:8000}}}}\n")
	r, err := Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	want := o.Main + ":5: 10.0.0.2:8000 is no replica of pool llm in " + o.Config + ": nginx uses it without a decision only: add it there"
	if len(r.Notes) != 1 || r.Notes[0] != want {
		t.Errorf("%q, want %q", r.Notes, want)
	}
}
