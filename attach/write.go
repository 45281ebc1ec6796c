package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Change is the change of one file.
type Change struct {
	Path   string
	Before []byte      // nil for a file that does not exist yet
	After  []byte      // nil removes the file
	Mode   fs.FileMode // of a new file; 0 = 0644
}

// Changes reports whether the file changes.
func (c *Change) Changes() bool {
	return (c.Before == nil) != (c.After == nil) || !bytes.Equal(c.Before, c.After)
}

// Read returns an empty change of a file that may exist.
func Read(path string) (Change, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{Path: path}, nil
	}
	if text == nil {
		text = []byte{}
	}
	return Change{Path: path, Before: text, After: text}, err
}

// Write makes the changes and then calls verify, which may be nil. If anything fails, it
// restores all files. Files that are replaced or removed are copied into the folder backup
// first, each under its own name and stamp; the paths of the copies are returned.
//
// A symbolic link stays one: the file that it leads to is replaced, in one step, with
// its mode and owner. It refuses a file that differs from Before.
func Write(changes []Change, backup, stamp string, verify func() error) (copies []string, err error) {
	var done []Change
	defer func() {
		if err == nil {
			return
		}
		for _, c := range done {
			c.Before, c.After = c.After, c.Before
			if e := c.write(); e != nil {
				err = errors.Join(err, fmt.Errorf("and could not restore it: %w", e))
			}
		}
	}()
	for _, c := range changes {
		if err := c.fresh(); err != nil {
			return copies, err
		}
	}
	for _, c := range changes {
		if !c.Changes() {
			continue
		}
		if c.Before != nil {
			name, err := c.backup(backup, stamp)
			if err != nil {
				return copies, fmt.Errorf("backup of %s: %w", c.Path, err)
			}
			copies = append(copies, name)
		}
		if err := c.write(); err != nil {
			return copies, fmt.Errorf("%s: %w", c.Path, err)
		}
		done = append(done, c)
	}
	if verify == nil {
		return copies, nil
	}
	return copies, verify()
}

// Writable reports the folders that Write would write to, but that this user may not write
// to. It changes nothing.
func Writable(changes []Change, backup string) error {
	var folders []string
	for _, c := range changes {
		if !c.Changes() {
			continue
		}
		path, err := filepath.EvalSymlinks(c.Path)
		if err != nil {
			path = c.Path
		}
		folders = append(folders, filepath.Dir(path))
		if c.Before != nil {
			folders = append(folders, backup)
		}
	}
	slices.Sort(folders)
	var errs []error
	for _, folder := range slices.Compact(folders) {
		at := folder
		for {
			_, err := os.Stat(at)
			if up := filepath.Dir(at); errors.Is(err, fs.ErrNotExist) && up != at {
				at = up
				continue
			}
			break
		}
		const write, search = 2, 1
		if err := syscall.Access(at, write|search); err != nil {
			text := "cannot write to " + folder
			if at != folder {
				text = "cannot make " + folder + " in " + at
			}
			errs = append(errs, fmt.Errorf("%s: %w", text, err))
		}
	}
	return errors.Join(errs...)
}

// fresh reports a file that was changed after it was read.
func (c *Change) fresh() error {
	now, err := Read(c.Path)
	if err != nil {
		return err
	}
	if (now.Before == nil) != (c.Before == nil) || !bytes.Equal(now.Before, c.Before) {
		return fmt.Errorf("%s was changed meanwhile: run the command again", c.Path)
	}
	return nil
}

// backup copies the file as it is, with its mode, into a folder that no proxy
// includes.
func (c *Change) backup(folder, stamp string) (string, error) {
	// The folders above it are for the agent and the proxy too.
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		name := filepath.Join(folder, filepath.Base(c.Path)+"."+stamp)
		if n > 0 {
			name += fmt.Sprintf("-%d", n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(c.Before)
		return name, errors.Join(err, f.Close())
	}
}

// write makes the change.
func (c *Change) write() error {
	path, err := filepath.EvalSymlinks(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = c.Path, nil
	}
	if err != nil {
		return err
	}
	if c.After == nil {
		return os.Remove(path)
	}
	mode, uid, gid := c.Mode, -1, -1
	if mode == 0 {
		mode = 0o644
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(s.Uid), int(s.Gid)
		}
	} else if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The name is hidden, so that no include matches it.
	f, err := os.CreateTemp(filepath.Dir(path), ".pointsman-*")
	if err != nil {
		return err
	}
	_, err = f.Write(c.After)
	err = errors.Join(err, f.Chmod(mode))
	if uid >= 0 {
		if here, ok := owner(f); !ok || here != [2]int{uid, gid} {
			err = errors.Join(err, f.Chown(uid, gid))
		}
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// owner is the user and the group of a file.
func owner(f *os.File) (ids [2]int, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return ids, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		ids = [2]int{int(s.Uid), int(s.Gid)}
	}
	return ids, ok
}
