package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileOptions say what is written where.
type FileOptions struct {
	Path     string
	MaxBytes int64 // of one file; what follows goes to a new one. 0 = no bound
	// MaxFiles is how many files are kept: one that exists gets a number, and the
	// oldest is removed. 0 = a file that exists is refused.
	MaxFiles int
}

// file writes lines. Each write is a whole gzip stream of its own, which gunzip takes
// as the continuation of those before: what was written can be read at any time, also
// after a crash. It belongs to one goroutine.
type file struct {
	FileOptions
	create func(path string) (output, error)

	out  output // nil = none is open
	size int64
	buf  bytes.Buffer
	gzip *gzip.Writer
}

// output is an open file.
type output interface {
	io.WriteCloser
	io.Seeker
	Truncate(size int64) error
	Sync() error
}

// create makes a new file that only its owner reads.
func create(path string) (output, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// probe reports why no file can be made beside path, before there is anything to
// write.
func probe(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".pointsman-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// isFull reports whether the next lines belong into a new file.
func (f *file) isFull() bool { return f.out != nil && f.MaxBytes > 0 && f.size >= f.MaxBytes }

// next begins a new file.
func (f *file) next() error {
	if err := f.close(); err != nil {
		return err
	}
	if f.MaxFiles > 0 {
		if err := f.shift(); err != nil {
			return err
		}
	}
	out, err := f.create(f.Path)
	if err != nil {
		return err
	}
	f.out, f.size = out, 0
	return nil
}

// write appends text as one gzip stream, or nothing.
func (f *file) write(text []byte) error {
	f.buf.Reset()
	if f.gzip == nil {
		f.gzip = gzip.NewWriter(&f.buf)
	}
	f.gzip.Reset(&f.buf)
	if _, err := f.gzip.Write(text); err != nil {
		return err
	}
	if err := f.gzip.Close(); err != nil {
		return err
	}
	n, err := f.out.Write(f.buf.Bytes())
	if err == nil {
		f.size += int64(n)
		return nil
	}
	// A part of it would hide all that follows.
	_, seek := f.out.Seek(f.size, io.SeekStart)
	if cut := errors.Join(f.out.Truncate(f.size), seek); cut != nil {
		return errors.Join(err, cut, f.close())
	}
	return err
}

// close completes the file.
func (f *file) close() error {
	if f.out == nil {
		return nil
	}
	out := f.out
	f.out = nil
	return errors.Join(out.Sync(), out.Close())
}

// shift gives the files that exist their next numbers, if there is one without.
func (f *file) shift() error {
	if _, err := os.Lstat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for n := f.MaxFiles - 1; ; n++ { // more, if fewer are kept than before
		if err := os.Remove(f.numbered(n)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for n := f.MaxFiles - 2; n >= 0; n-- {
		if err := os.Rename(f.numbered(n), f.numbered(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// numbered is the path of an older file, such as traffic.2.jsonl.gz.
func (f *file) numbered(n int) string {
	if n == 0 {
		return f.Path
	}
	folder, name := filepath.Split(f.Path)
	base, rest, dotted := strings.Cut(name, ".")
	if dotted {
		rest = "." + rest
	}
	return fmt.Sprintf("%s%s.%d%s", folder, base, n, rest)
}
