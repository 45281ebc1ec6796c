package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
)

// The file: fileMagic; the secret of the block keys; when it was written, in Unix
// nanoseconds; for each pool its name and snapshot; a name of length 0; and the xxHash of
// all that.
const (
	fileName  = "state"
	fileMagic = "pointsman-state\x01"
)

// These are used in place of a pool's name; no pool can have them.
const (
	budgetsName = "/budgets"
	blocksName  = "/blocks"
)

// Bounds of a file. After oldest, engines have evicted the blocks that the file lists.
const (
	mostFile   = 256 << 20
	mostPool   = 100 << 20
	mostName   = 256
	mostSecret = 64
	oldest     = time.Hour
)

// Loaded is the content of the file of an earlier life.
type Loaded struct {
	Secret []byte        // of its block keys
	Age    time.Duration // since it was written

	pools   map[string][]byte // snapshots, by pool
	budgets []byte            // counts of tokens
	blocks  []byte            // the engines' reports of their caches
}

// errForeign is the reason to ignore a file that may not be the agent's own.
var errForeign = errors.New("it is not this agent's: want a regular file of the agent's user that nobody else can read or write")

// load reads the file in dir.
func load(dir string, now time.Time) (*Loaded, error) {
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || known && int(owner.Uid) != os.Geteuid() {
		return nil, errForeign
	}
	text, err := io.ReadAll(io.LimitReader(f, mostFile))
	if err != nil {
		return nil, err
	}
	return parse(text, now)
}

// errDamaged is the error of a file that is not as it was written.
var errDamaged = errors.New("it is damaged, or of another version")

// parse reads the contents of a file.
func parse(text []byte, now time.Time) (*Loaded, error) {
	body, ok := bytes.CutPrefix(text, []byte(fileMagic))
	if !ok || len(body) < 8 {
		return nil, errDamaged
	}
	end := len(text) - 8
	if xxhash.Sum64(text[:end]) != binary.LittleEndian.Uint64(text[end:]) {
		return nil, errDamaged
	}
	body = body[:len(body)-8]
	next := func(most int) []byte {
		n, size := binary.Uvarint(body)
		if size <= 0 || n > uint64(min(most, len(body)-size)) {
			ok = false
			return nil
		}
		part := body[size : size+int(n)]
		body = body[size+int(n):]
		return part
	}
	l := &Loaded{pools: map[string][]byte{}}
	l.Secret = next(mostSecret)
	at := next(8)
	for ok {
		name := next(mostName)
		if len(name) == 0 {
			break
		}
		part := next(mostPool)
		switch string(name) {
		case budgetsName:
			l.budgets = part
		case blocksName:
			l.blocks = part
		default:
			l.pools[string(name)] = part
		}
	}
	if !ok || len(body) > 0 || len(at) != 8 {
		return nil, errDamaged
	}
	// The clock may have been set meanwhile.
	l.Age = max(0, now.Sub(time.Unix(0, int64(binary.LittleEndian.Uint64(at)))))
	if l.Age > oldest {
		return nil, fmt.Errorf("it is %s old, more than %s", l.Age.Round(time.Second), oldest)
	}
	return l, nil
}

// save writes the pools of d to the file in dir: to another file first, which then
// takes its place. It returns the size.
func save(dir string, d *decider.Decider, blocks Blocks, secret []byte, now time.Time) (size int64, err error) {
	f, err := os.CreateTemp(dir, fileName+".*.tmp") // mode 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := &sums{w: f, hash: xxhash.New()}
	if _, err = io.WriteString(w, fileMagic); err != nil {
		return 0, err
	}
	if err = w.part(secret); err != nil {
		return 0, err
	}
	if err = w.part(binary.LittleEndian.AppendUint64(nil, uint64(now.UnixNano()))); err != nil {
		return 0, err
	}
	var b bytes.Buffer
	for _, p := range d.Pools() {
		b.Reset()
		if err = p.State().Snapshot(&b); err != nil {
			return 0, err
		}
		if len(p.Name()) > mostName || b.Len() > mostPool || w.n+int64(b.Len()) > mostFile-1<<10 {
			continue // nobody would read it
		}
		if err = w.part([]byte(p.Name())); err != nil {
			return 0, err
		}
		if err = w.part(b.Bytes()); err != nil {
			return 0, err
		}
	}
	beside := func(name string, text []byte) error {
		if len(text) > mostPool || w.n+int64(len(text)) > mostFile-1<<10 {
			return nil // nobody would read it
		}
		if err := w.part([]byte(name)); err != nil {
			return err
		}
		return w.part(text)
	}
	if d.Budgets.On() {
		if err = beside(budgetsName, d.Budgets.Snapshot(nil)); err != nil {
			return 0, err
		}
	}
	if blocks != nil {
		if err = beside(blocksName, blocks.Snapshot()); err != nil {
			return 0, err
		}
	}
	if err = w.part(nil); err != nil {
		return 0, err
	}
	if _, err = w.Write(binary.LittleEndian.AppendUint64(nil, w.hash.Sum64())); err != nil {
		return 0, err
	}
	if err = f.Sync(); err != nil {
		return 0, err
	}
	if err = f.Close(); err != nil {
		return 0, err
	}
	if err = os.Rename(f.Name(), filepath.Join(dir, fileName)); err != nil {
		return 0, err
	}
	return w.n, syncDir(dir)
}

// sums counts and hashes what it writes.
type sums struct {
	w    io.Writer
	hash *xxhash.Digest
	n    int64
}

func (s *sums) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	_, _ = s.hash.Write(b[:n])
	s.n += int64(n)
	return n, err
}

func (s *sums) part(b []byte) error {
	if _, err := s.Write(binary.AppendUvarint(nil, uint64(len(b)))); err != nil {
		return err
	}
	_, err := s.Write(b)
	return err
}

// syncDir makes a rename in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// lock locks dir against other agents until the returned file is closed; nil if another
// agent has it.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another agent keeps its state there")
		}
		return nil, err
	}
	return f, nil
}

// removeLeftovers removes the files of a write that was killed.
func removeLeftovers(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, fileName+".*.tmp"))
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeType == 0 {
			os.Remove(name)
		}
	}
}
