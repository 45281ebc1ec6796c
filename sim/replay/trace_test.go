package replay

import (
	"os"
	"testing"

	"pointsman/sim/trace"
)

// openTrace reads the conversation trace that lies beside the repository.
func openTrace(tb testing.TB) *trace.Trace {
	const path = "../../../shared/traces/mooncake-conversation.jsonl"
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		tb.Skip("no trace: ", path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	t, err := trace.Read(f, trace.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
