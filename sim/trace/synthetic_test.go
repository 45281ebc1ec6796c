package trace

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestWriteSynthetic: equal seeds give equal traces, and Read reads them.
func TestWriteSynthetic(t *testing.T) {
	write := func(name string, seed uint64) []byte {
		t.Helper()
		var b bytes.Buffer
		if err := WriteSynthetic(&b, name, seed); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name := range workloads {
		one := write(name, 1)
		if !bytes.Equal(one, write(name, 1)) {
			t.Errorf("%s: seed 1 gives two traces", name)
		}
		if bytes.Equal(one, write(name, 2)) {
			t.Errorf("%s: seeds 1 and 2 give the same trace", name)
		}
		trace, err := Read(bytes.NewReader(one), Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(trace.Requests) != syntheticRequests {
			t.Errorf("%s: %d requests", name, len(trace.Requests))
		}
		seen := map[uint64]bool{}
		repeated := 0
		for _, r := range trace.Requests {
			if len(r.Blocks) > 0 && seen[r.Blocks[0]] {
				repeated++
			}
			for _, b := range r.Blocks {
				seen[b] = true
			}
		}
		// All but the first request of each system prompt begin with a known block.
		if first := len(trace.Requests) - repeated; first != workloads[name].prompts {
			t.Errorf("%s: %d requests begin with a new block, want %d", name, first, workloads[name].prompts)
		}
	}
}

func TestWriteSyntheticErrors(t *testing.T) {
	err := WriteSynthetic(&bytes.Buffer{}, "mails", 1)
	if err == nil || !strings.Contains(err.Error(), `unknown "mails"; want one of agents, chats, documents`) {
		t.Error(err)
	}
	if err := WriteSynthetic(brokenWriter{}, "chats", 1); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
