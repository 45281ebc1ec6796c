package misuse_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"pointsman/misuse"
)

func TestMark(t *testing.T) {
	if misuse.Of(nil) != nil || misuse.Is(nil) || misuse.Is(fs.ErrExist) {
		t.Error("no error, or one of a file, is marked")
	}
	err := misuse.Errorf("--out: %w", fs.ErrExist)
	if err.Error() != "--out: file already exists" || !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	for _, err := range []error{err, misuse.Of(fs.ErrExist), fmt.Errorf("trace: %w", err), errors.Join(fs.ErrClosed, err)} {
		if !misuse.Is(err) {
			t.Errorf("%v is not marked", err)
		}
	}
}
