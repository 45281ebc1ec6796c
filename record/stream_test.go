package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/decider"
)

// A recording that nobody writes drops requests, and never waits.
func TestQueueIsBounded(t *testing.T) {
	b := newBench(t)
	s, err := b.recorder.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for range maxWaiting + 10 {
		b.serve("x", "", 0)
	}
	if n := b.recorder.dropped.Get(); n != 10 {
		t.Errorf("%d dropped, want 10", n)
	}
	blocks := make([]uint64, maxKeys/2)
	for range 3 {
		s.queue.add(&decider.Ended{Request: &decider.Request{}, Blocks: blocks})
	}
	s.queue.drop()
	if !b.pool.RecordsText() {
		return
	}
	t.Error("prompts are still hashed after the last recording")
}

// TestStream: what a stream sends, Save makes a file of that simulate reads. The
// recordings are bounded.
func TestStream(t *testing.T) {
	b := newBench(t)
	s, err := b.recorder.Stream()
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	out := bufio.NewWriter(w)
	go func() {
		s.Run(func(lines []byte) error {
			if _, err := out.Write(lines); err != nil {
				return err
			}
			return out.Flush()
		}, time.Hour)
		w.Close()
	}()
	path := filepath.Join(t.TempDir(), "mine.jsonl.gz")
	type result struct {
		n   int
		err error
	}
	saved := make(chan result, 1)
	go func() {
		n, err := Save(path, r)
		saved <- result{n, err}
	}()
	for range 5 {
		b.serve("hello", "s", 0)
	}
	for deadline := time.Now().Add(30 * time.Second); b.recorder.recorded.Get() < 5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was sent")
		}
	}
	b.recorder.Close()
	if got := <-saved; got.n != 5 || got.err != nil {
		t.Errorf("%+v", got)
	}
	if h, lines, _ := read(t, path); h.Form != Form || len(lines) != 5 {
		t.Errorf("%+v %d", h, len(lines))
	}
	if _, err := Save(path, bytes.NewReader(nil)); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second time: %v", err)
	}
	for range MaxStreams {
		if _, err := b.recorder.Stream(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.recorder.Stream(); !errors.Is(err, errMany) {
		t.Errorf("one more: %v", err)
	}
}

// A stream that breaks leaves a file with the whole lines.
func TestSaveBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.jsonl.gz")
	n, err := Save(path, io.MultiReader(strings.NewReader(`{"form":1}`+"\n\n"+`{"input_length":1}`+"\n"+`{"input_len`), broken{}))
	if n != 1 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d %v", n, err)
	}
	if h, lines, _ := read(t, path); h.Form != 1 || len(lines) != 1 {
		t.Errorf("%+v %v", h, lines)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }
