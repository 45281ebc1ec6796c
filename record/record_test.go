package record

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/bytedance/sonic"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/intake"
	"pointsman/session"
	"pointsman/sim/trace"
)

// first is a policy that looks at nothing.
type first struct{}

func (first) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return append(dst, v.Candidates[0])
}

// bench is an agent without sockets.
type bench struct {
	t        *testing.T
	clock    *decidertest.Clock
	intake   *intake.Intake
	pool     *decider.Pool
	recorder *Recorder
	n        int
}

func newBench(t *testing.T) *bench {
	clock := &decidertest.Clock{}
	clock.Advance(time.Hour)
	d := decider.New(clock.Read, decidertest.Seeds())
	d.Secret = []byte("secret")
	in := intake.New(d)
	in.Apply(intake.Config{
		Pools:   []decider.PoolConfig{{Name: "chat", Models: []string{"m"}, Policy: first{}, PolicyName: "first", PolicyFlow: "{name: first, of: 3}", Replicas: decidertest.Replicas(3)}},
		Session: session.NewHeaders([]string{"x-session-id"}),
	})
	epoch := time.UnixMilli(1_700_000_000_000).Add(-time.Hour)
	return &bench{t: t, clock: clock, intake: in, pool: d.Pool("chat"), recorder: New(d, epoch, metrics.NewSet())}
}

// serve has one request served, and returns its id and the keys of its prompt.
func (b *bench) serve(prompt, session string, bytes int) (string, []uint64) {
	b.t.Helper()
	b.n++
	id := fmt.Sprintf("%032x", b.n)
	body := fmt.Appendf(nil, `{"model":"m","stream":true,"max_tokens":50,"messages":[{"role":"user","content":%q}]}`, prompt)
	var r intake.Request
	in := intake.Input{ID: []byte(id), Path: []byte("/v1/chat/completions"), Body: body, BodySize: len(body)}
	if session != "" {
		in.Headers = []byte("x-session-id: " + session + "\r\n")
	}
	if b.intake.Handle(&r, in, nil) || r.Decision.Server != "r0" {
		b.t.Fatalf("decided %+v", r.Decision)
	}
	keys := slices.Clone(r.TextBlocks)
	b.clock.Advance(100 * time.Millisecond)
	b.pool.FirstToken(r.ID, []byte("r0"))
	b.clock.Advance(400 * time.Millisecond)
	b.pool.Finished(decider.Outcome{ID: r.ID, Server: []byte("r0"), Status: 200, Bytes: bytes})
	return id, keys
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// read returns the lines of a file.
func read(t *testing.T, path string) (header Header, lines []map[string]any, raw string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if i == 0 {
			if err := sonic.UnmarshalString(line, &header); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var m map[string]any
		if err := sonic.UnmarshalString(line, &m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		lines = append(lines, m)
	}
	return header, lines, string(text)
}

// A recording has the figures of each request, and nothing that leads back to it.
func TestFile(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "traffic.jsonl.gz")
	b.serve("before the recording", "s", 1000)
	stop := b.recorder.File(FileOptions{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}, quiet())
	secret := strings.Repeat("the fox told the hen a secret; ", 100) // 3,100 bytes
	id, keys := b.serve(secret, "ann-s-session", 8*201)
	b.serve(secret+" and more of it", "ann-s-session", 3*201)
	b.serve("another", "", 0)
	stop()
	b.serve("after it", "s", 1000)

	header, lines, raw := read(t, path)
	if header.Form != Form || len(header.Pools) != 1 || header.Pools[0] != (HeaderPool{Name: "chat", Policy: "{name: first, of: 3}", Replicas: 3, CacheTokens: decider.DefaultCacheTokens}) {
		t.Errorf("header %+v", header)
	}
	if len(lines) != 3 || len(keys) != 3 {
		t.Fatalf("%d lines, %d blocks:\n%s", len(lines), len(keys), raw)
	}
	want := map[string]any{
		"timestamp": 1700000000500.0, "input_length": 776.0, "output_length": 7.0, "max_tokens": 50.0, "pool": "chat", "model": "m", "stream": true,
		"outcome": "served", "status": 200.0, "ttft": 0.1, "duration": 0.5, "block_tokens": 256.0,
	}
	for k, v := range want {
		if lines[0][k] != v {
			t.Errorf("%s is %v, want %v", k, lines[0][k], v)
		}
	}
	one, two := lines[0]["hash_ids"].([]any), lines[1]["hash_ids"].([]any)
	if len(one) != 3 || !slices.Equal(one, two[:3]) || lines[0]["session"] != lines[1]["session"] || lines[0]["session"] == nil {
		t.Errorf("the turns of a conversation do not match:\n%s", raw)
	}
	if lines[2]["session"] != nil || lines[2]["output_length"] != nil {
		t.Errorf("third %v", lines[2])
	}
	for _, no := range []string{"fox", "secret", "ann", id, strconv.FormatUint(session.Key([]byte("ann-s-session")), 10), strconv.FormatUint(session.Key([]byte("ann-s-session")), 16)} {
		if strings.Contains(raw, no) {
			t.Errorf("%q is in\n%s", no, raw)
		}
	}
	for _, key := range keys {
		for _, form := range []string{strconv.FormatUint(key, 10), strconv.FormatUint(key, 16), strconv.FormatUint(key>>12, 10), strconv.FormatUint(key&(1<<52-1), 10)} {
			if strings.Contains(raw, form) {
				t.Errorf("the key %s is in\n%s", form, raw)
			}
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}

	replayed, err := trace.ReadFile(path, trace.Options{})
	if err != nil || len(replayed.Requests) != 3 || replayed.Requests[0].Output != 7 || len(replayed.Requests[1].Blocks) != 3 || replayed.Recorded.Policy != "{name: first, of: 3}" {
		t.Errorf("as simulate reads it: %+v %v", replayed, err)
	}
}

// Each file has a salt of its own, and a full file gives way to the next.
func TestRotation(t *testing.T) {
	b := newBench(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "traffic.jsonl.gz")
	prompt := strings.Repeat("one and the same prompt ", 200)
	seen := map[any]bool{}
	for i := range 4 {
		// Whatever is there when a recording begins is full.
		stop := b.recorder.File(FileOptions{Path: path, MaxBytes: 1 << 20, MaxFiles: 3}, quiet())
		b.serve(prompt, "s", 1000)
		stop()
		_, lines, _ := read(t, path)
		hash := lines[0]["hash_ids"].([]any)[0]
		if seen[hash] || seen[lines[0]["session"]] {
			t.Errorf("file %d has the hashes of another", i)
		}
		seen[hash], seen[lines[0]["session"]] = true, true
	}
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		names[i] = filepath.Base(name)
	}
	if want := []string{"traffic.1.jsonl.gz", "traffic.2.jsonl.gz", "traffic.jsonl.gz"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}

	w := &writer{queue: &queue{recorder: b.recorder}, log: quiet(), file: file{FileOptions: FileOptions{Path: path, MaxBytes: 300, MaxFiles: 2}, create: create}}
	for range 4 {
		w.add(&entry{request: decider.Request{Input: 1}})
		w.flush()
	}
	if err := w.file.close(); err != nil {
		t.Fatal(err)
	}
	names, err = filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(names) != 2 {
		t.Errorf("%v %v", names, err)
	}
	for _, name := range names {
		if h, lines, _ := read(t, name); h.Form != Form || len(lines) == 0 {
			t.Errorf("%s: %+v %d lines", name, h, len(lines))
		}
	}
}

// disk is a file whose disk is full after so many bytes.
type disk struct {
	*os.File
	left *int
}

func (d disk) Write(p []byte) (int, error) {
	if len(p) > *d.left {
		n, _ := d.File.Write(p[:*d.left])
		*d.left = 0
		return n, syscall.ENOSPC
	}
	*d.left -= len(p)
	return d.File.Write(p)
}

// lines counts the lines of a log by their message.
type lines struct {
	mu sync.Mutex
	n  map[string]int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n[r.Message]++
	return nil
}

// On a full disk what was written can be read, older files stay, the log has one
// line, and the recording goes on when there is room.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "traffic.jsonl.gz")
	if err := os.WriteFile(path, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	room := 700
	log := &lines{n: map[string]int{}}
	w := &writer{queue: &queue{recorder: b.recorder}, log: slog.New(log)}
	w.file = file{FileOptions: FileOptions{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}}
	w.create = func(path string) (output, error) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return disk{f, &room}, err
	}
	written := func() int {
		_, list, _ := read(t, path)
		return len(list)
	}
	for range 20 {
		w.add(&entry{request: decider.Request{Input: 7}})
		w.paused = false // as of the next tick
		w.flush()
	}
	before := written()
	if before < 1 || before > 10 || b.recorder.dropped.Get() != uint64(20-before) {
		t.Errorf("%d written, %d dropped", before, b.recorder.dropped.Get())
	}
	room = 1 << 20
	w.add(&entry{request: decider.Request{Input: 8}})
	w.flush()
	if n := written(); n != before+1 {
		t.Errorf("%d written after there was room, want %d", n, before+1)
	}
	if log.n["cannot record traffic; requests are served as before"] != 1 || log.n["recording traffic again"] != 1 || len(log.n) != 2 {
		t.Errorf("log %v", log.n)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "traffic.1.jsonl.gz")); err != nil || string(text) != "older" {
		t.Errorf("the older file: %q %v", text, err)
	}
	// A file that cannot even be made costs no older one.
	if err := errors.Join(w.file.close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	w.create = func(string) (output, error) { return nil, syscall.ENOSPC }
	for range 5 {
		w.paused = false
		w.add(&entry{request: decider.Request{Input: 9}})
	}
	if _, err := os.Stat(filepath.Join(folder, "traffic.1.jsonl.gz")); err != nil {
		t.Error(err)
	}
}

// Recording a request does not allocate in steady state: it happens under the
// pool's lock.
func TestRecordDoesNotAllocate(t *testing.T) {
	b := newBench(t)
	q, err := b.recorder.open(false)
	if err != nil {
		t.Fatal(err)
	}
	e := decider.Ended{Request: &decider.Request{}, Blocks: make([]uint64, 100)}
	if n := testing.AllocsPerRun(1000, func() {
		q.add(&e)
		q.release(<-q.entries)
	}); n > 0.1 {
		t.Errorf("%v allocations", n)
	}
}
