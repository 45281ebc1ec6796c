package check

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pointsman/templates"
)

// The unit that is installed listens inside Debian's chroot, and check knows.
func TestUnitListens(t *testing.T) {
	dir := t.TempDir()
	for _, f := range templates.Systemd() {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/run/pointsman/spoe.sock", "/var/lib/haproxy/run/pointsman/spoe.sock"}
	if got := listensOn(filepath.Join(dir, filepath.Base(spoeUnit))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := listensOn(filepath.Join(dir, "absent")); got != nil {
		t.Errorf("a unit that is not there listens on %q", got)
	}
}
