package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pointsman/session"
	"pointsman/test/rig"
)

// recordedLine is what the test reads of a line of a recording.
type recordedLine struct {
	Input    int     `json:"input_length"`
	Output   int     `json:"output_length"`
	Session  string  `json:"session"`
	Stream   bool    `json:"stream"`
	Outcome  string  `json:"outcome"`
	TTFT     float64 `json:"ttft"`
	Duration float64 `json:"duration"`
	Blocks   []int64 `json:"hash_ids"`
}

// recorded reads a recording as far as it was written.
func recorded(t *testing.T, path string) (lines []recordedLine, raw string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, ""
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, ""
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l recordedLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if l.Outcome != "" {
			lines = append(lines, l)
		}
	}
	return lines, string(text)
}

// TestRecord records traffic through a real proxy, by the configuration and by the
// command: with its lengths and times, without anything of its text or ids. simulate
// replays it and names the policy that ran.
func TestRecord(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		folder := t.TempDir()
		file, mine := filepath.Join(folder, "traffic.jsonl.gz"), filepath.Join(folder, "mine.jsonl.gz")
		// A policy that does not look at prompts.
		s, _ := rig.Replicas(t, r, 2, "round_robin", fmt.Sprintf("record: {file: %q}", file))
		s.Patient()
		_, isHAProxy := s.Proxy.(*rig.HAProxy) // nginx reports no first bytes
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()

		command := exec.Command(rig.Binary, "record", "--admin", s.Agent.Admin, "--out", mine, "--for", "1h")
		var printed bytes.Buffer
		command.Stdout, command.Stderr = &printed, &printed
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		t.Cleanup(func() { command.Process.Kill() })
		rig.Eventually(t, 20*time.Second, "both record", func() (bool, string) {
			n := s.Agent.Metrics()["pointsman_recordings"]
			return n == 2, fmt.Sprint(n)
		})

		const turns, secret, id = 6, "a fox in the henhouse", "session-of-ann"
		text := strings.Repeat(secret+" ", 200) // 4,400 bytes
		for i := range turns {
			text += strings.Repeat(fmt.Sprintf("turn %d of it ", i), 100)
			c := rig.Call{
				Body:   fmt.Appendf(nil, `{"model":%q,"max_tokens":40,"ignore_eos":true,"stream":%t,"messages":[{"role":"user","content":%q}]}`, rig.Model, i%2 == 0, text),
				Header: map[string]string{"X-Session-Id": id},
			}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Fatal(err)
			}
		}
		var lines []recordedLine
		for _, path := range []string{file, mine} {
			var raw string
			rig.Eventually(t, 20*time.Second, "the requests are in "+path, func() (bool, string) {
				lines, raw = recorded(t, path)
				return len(lines) >= turns, raw
			})
			for _, no := range []string{"fox", "turn", id, fmt.Sprint(session.Key([]byte(id))), fmt.Sprintf("%x", session.Key([]byte(id))), "127.0.0.1"} {
				if strings.Contains(raw, no) {
					t.Errorf("%s has %q:\n%s", path, no, raw)
				}
			}
			lines = lines[len(lines)-turns:] // before them, the rig has asked
			for i, l := range lines {
				if l.Outcome != "served" || l.Stream != (i%2 == 0) || l.Session == "" || l.Session != lines[0].Session || isHAProxy && l.TTFT <= 0 || l.Duration < l.TTFT {
					t.Errorf("turn %d: %+v", i, l)
				}
				if want := (4400 + 1300*(i+1)) / 4; l.Input < want || l.Input > want+10 {
					t.Errorf("turn %d has %d prompt tokens, want %d", i, l.Input, want)
				}
				if l.Output < 30 || l.Output > 40 {
					t.Errorf("turn %d: an answer of 40 tokens was taken for %d", i, l.Output)
				}
				if want := (4400 + 1300*(i+1)) / 1024; len(l.Blocks) != want || i > 0 && !slices.Equal(l.Blocks[:len(lines[i-1].Blocks)], lines[i-1].Blocks) {
					t.Errorf("turn %d has blocks %v, want %d that continue those before", i, l.Blocks, want)
				}
			}
		}
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || !strings.Contains(printed.String(), "requests recorded; try pointsman simulate --trace "+mine) {
			t.Errorf("record: %v\n%s", err, &printed)
		}
		for _, path := range []string{file, mine} { // one of them is still written to
			out, err := exec.Command(rig.Binary, "simulate", "--trace", path).CombinedOutput()
			for _, want := range []string{" 2 replicas of 70b", "recorded with round_robin: ", "\nleast_work ", "against round_robin."} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("simulate: %v, no %q in\n%s", err, want, out)
				}
			}
		}
		s.Untroubled()
	})
}
