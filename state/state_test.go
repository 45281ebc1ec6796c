package state

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// logged is what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) lines(containing string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

var secret = []byte("0123456789abcdef")

// life is a pool and what keeps its memory.
type life struct {
	*decidertest.Pool
	keeper *Keeper
	log    *logged
}

func begin(t *testing.T, dir string, change ...func(*decider.PoolConfig)) *life {
	t.Helper()
	l := &life{log: &logged{}}
	l.keeper = Open(dir, slog.New(slog.NewTextHandler(l.log, nil)))
	l.Pool = decidertest.New(policy.LeastWork{}, 3, change...)
	l.keeper.Keep(l.Decider, secret)
	return l
}

// fill sends prompts, of which one still runs.
func (l *life) fill() {
	for k := range uint64(20) {
		d, id := l.Send(func(r *decider.Request) {
			r.Blocks, r.Input = []uint64{k, k + 1000, k + 2000}, 3*decider.DefaultBlockTokens
		})
		l.FirstToken(id, []byte(d.Server))
		if k > 0 {
			l.End(id, d.Server)
		}
	}
}

func TestMemoryOverRestart(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir)
	if a.keeper.Restore() || a.keeper.Status().Restored != nil || a.log.lines("") != 0 {
		t.Errorf("the first life restores something: %+v, logs %s", a.keeper.Status(), a.log.b.String())
	}
	a.fill()
	a.keeper.Close()
	if s := a.keeper.Status(); s.Writes != 1 || s.Bytes == 0 || s.Age < 0 {
		t.Errorf("written: %+v", s)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != a.keeper.Status().Bytes {
		t.Errorf("the file is %v, %v; others must not read it", info, err)
	}

	b := begin(t, dir)
	if !bytes.Equal(b.keeper.Secret(), secret) {
		t.Errorf("secret %q", b.keeper.Secret())
	}
	if b.keeper.Restore() {
		t.Error("a pool with replicas waits for them")
	}
	s := b.keeper.Status().Restored
	if s == nil || s.Pools != 1 || s.Blocks != 60 || s.Requests != 1 || b.log.lines("restored") != 1 {
		t.Errorf("restored %+v, logs %s", s, b.log.b.String())
	}
	set := metrics.NewSet()
	b.keeper.Export(set)
	var text bytes.Buffer
	set.WritePrometheus(&text)
	if !strings.Contains(text.String(), "pointsman_state_restored_blocks 60\n") {
		t.Error(text.String())
	}
}

// A pool whose replicas are found later gets its memory then, and the file stays
// as it is until then.
func TestMemoryWaitsForReplicas(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir)
	a.fill()
	a.keeper.Close()
	before, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	b := begin(t, dir, func(c *decider.PoolConfig) { c.Discover, c.Replicas = true, nil })
	if !b.keeper.Restore() {
		t.Fatal("a pool without replicas does not wait")
	}
	if b.keeper.IsReady() {
		t.Error("ready before its memory is there")
	}
	b.keeper.Close()
	if after, err := os.ReadFile(filepath.Join(dir, fileName)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was written before it was restored, error %v", err)
	}
	var found []decider.ReplicaState
	for _, r := range decidertest.Replicas(3) {
		found = append(found, decider.ReplicaState{Name: r.Name, Address: r.Address, Up: true, Weight: 1})
	}
	b.Discovered(found)
	if b.keeper.Restore() || !b.keeper.IsReady() || b.keeper.Status().Restored.Blocks != 60 {
		t.Errorf("restored %+v", b.keeper.Status().Restored)
	}
}

// Whatever is wrong with the file, the agent begins without it and says so once.
func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir)
	a.fill()
	a.keeper.Close()
	good, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if l, err := parse(good, time.Now()); err != nil || len(l.pools) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := parse(good, time.Now().Add(oldest+time.Minute)); err == nil || !strings.Contains(err.Error(), "old") {
		t.Errorf("an old file: error %v", err)
	}
	if l, err := parse(good, time.Now().Add(-24*time.Hour)); err != nil || l.Age != 0 {
		t.Errorf("a file of tomorrow: %+v, %v; the clock may have been set back", l, err)
	}
	for at := 0; at < len(good); at += 1 + len(good)/100 {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if _, err := parse(bad, time.Now()); err == nil {
			t.Errorf("a file with byte %d changed is taken for good", at)
		}
		if _, err := parse(good[:at], time.Now()); err == nil {
			t.Errorf("a file cut at %d is taken for good", at)
		}
	}
	for name, spoil := range map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, good[:len(good)-1], 0o600) },
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"other version": func(path string) error {
			return os.WriteFile(path, append([]byte("pointsman-state\x02"), good[len(fileMagic):]...), 0o600)
		},
		"readable": func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o644)
		},
		"symlink":   func(path string) error { return os.Symlink(filepath.Join(dir, fileName), path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := spoil(filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
			b := begin(t, dir)
			if b.keeper.Restore() || b.keeper.Secret() != nil || b.keeper.Status().Restored != nil {
				t.Errorf("restored %+v", b.keeper.Status())
			}
			if b.log.lines("is ignored") != 1 || b.log.lines("") != 1 {
				t.Errorf("logs %s", b.log.b.String())
			}
		})
	}
}

// A directory that cannot be written is logged once, and once that it can again.
func TestUnwritableDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	a := begin(t, dir)
	a.keeper.Restore()
	for range 3 {
		a.keeper.write()
	}
	if s := a.keeper.Status(); s.Failures != 3 || s.Writes != 0 || a.log.lines("cannot be written") != 1 {
		t.Errorf("%+v, logs %s", s, a.log.b.String())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a.keeper.write()
	if s := a.keeper.Status(); s.Writes != 1 || a.log.lines("written again") != 1 {
		t.Errorf("%+v, logs %s", s, a.log.b.String())
	}
}

// Two agents do not write over each other, and what a killed one left is removed.
func TestDirectoryHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, fileName+".123.tmp")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := begin(t, dir), begin(t, dir)
	a.keeper.write()
	b.keeper.write()
	if a.keeper.Status().Writes != 1 || b.keeper.Status().Writes != 0 || b.log.lines("another agent") != 1 {
		t.Errorf("%+v and %+v, logs %s", a.keeper.Status(), b.keeper.Status(), b.log.b.String())
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed agent left is there yet")
	}
	a.keeper.Close()
	b.keeper.write()
	if b.keeper.Status().Writes != 1 {
		t.Error("the directory of an agent that has ended is not free")
	}
}

// sealed is a file with that body, and the checksum that it needs.
func sealed(body []byte) []byte {
	text := append([]byte(fileMagic), body...)
	return binary.LittleEndian.AppendUint64(text, xxhash.Sum64(text))
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, text []byte) {
		parse(text, time.Now())
		// With a checksum that is right, all else is believed no more.
		parse(sealed(text), time.Now())
	})
}

// blocks is what is known of engines' caches.
type blocks struct{ text string }

func (b *blocks) Snapshot() []byte { return []byte(b.text) }

func (b *blocks) Restore(text []byte) { b.text = string(text) }

func TestBlocksAreKept(t *testing.T) {
	dir := t.TempDir()
	a := begin(t, dir)
	first := &blocks{"what the engines reported"}
	a.keeper.KeepBlocks(first)
	if first.text != "what the engines reported" {
		t.Error("a first life restores something")
	}
	a.keeper.Restore()
	a.fill()
	a.keeper.Close()
	b := begin(t, dir)
	var second blocks
	b.keeper.KeepBlocks(&second)
	b.keeper.Restore()
	if second.text != first.text || b.keeper.Status().Restored.Pools != 1 {
		t.Errorf("%q, %+v", second.text, b.keeper.Status())
	}
	b.keeper.Close()
}
