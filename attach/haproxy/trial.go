package haproxy

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"pointsman/attach"
	"pointsman/templates"
)

// numbers are line numbers and process ids in HAProxy's messages.
var numbers = regexp.MustCompile(`[0-9]+`)

// besideOriginal matches configurations whose relative paths start at the folder of the
// file, so that a copy must be in that folder too.
var besideOriginal = regexp.MustCompile(`(?m)^\s*default-path\s+(config|parent)`)

// trial lets HAProxy check copies of the files.
type trial struct {
	*Result
	folder string
	names  map[string]string // user's path by that of a copy
	beside []string          // copies to remove
}

// run checks the files as they are, or as they become, and returns what HAProxy
// prints, in the user's own file names.
func (t *trial) run(haproxy func(args ...string) (string, error), after bool) ([]string, error) {
	args := []string{"-c"}
	place := func(c attach.Change, n int, text []byte) error {
		path := filepath.Join(t.folder, strconv.FormatBool(after)+strconv.Itoa(n)+"-"+filepath.Base(c.Path))
		if besideOriginal.Match(text) {
			path = filepath.Join(filepath.Dir(c.Path), ".pointsman-trial-"+filepath.Base(c.Path))
			t.beside = append(t.beside, path)
		}
		t.names[path] = c.Path
		args = append(args, "-f", path)
		return os.WriteFile(path, text, 0o600)
	}
	spoe := filepath.Join(t.folder, templates.SPOEFile)
	for i, c := range t.Changes {
		switch {
		case i < t.Theirs || i == t.own || c.After == nil && strings.HasPrefix(string(c.Before), ownHead):
			text := c.Before
			if after {
				text = c.After
			}
			if after && t.spoe != "" && text != nil {
				text = bytes.ReplaceAll(text, []byte(t.spoe), []byte(spoe))
			}
			if text == nil {
				continue
			}
			if err := place(c, i, text); err != nil {
				return nil, err
			}
		case c.Path == t.spoe && c.After != nil:
			if err := os.WriteFile(spoe, c.After, 0o600); err != nil {
				return nil, err
			}
		}
	}
	out, err := haproxy(args...)
	for copied, own := range t.names {
		out = strings.ReplaceAll(out, copied, own)
	}
	return strings.Split(strings.TrimSpace(out), "\n"), err
}

// clean removes the copies that lie beside the originals.
func (t *trial) clean() {
	for _, path := range t.beside {
		_ = os.Remove(path)
	}
}
