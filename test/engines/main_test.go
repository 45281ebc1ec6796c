package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pointsman/test/engines/tiny"
	"pointsman/test/rig"
)

// withVLLM has the tests of vLLM run, which take minutes and several GB.
var withVLLM = os.Getenv("POINTSMAN_ENGINES") == "1"

// folder holds the models and the logs of engines.
var folder string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pointsman-engines-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	folder = dir
	code := rig.Run(m)
	stopVLLM()
	os.RemoveAll(dir)
	os.Exit(code)
}

// models are written once, by the first test that needs them.
var models = sync.OnceValue(func() error {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		return err
	}
	v := tiny.Learn(string(text), 500)
	for _, write := range []func() error{
		func() error { return tiny.GGUF(path("tiny.gguf"), v, 1) },
		func() error { return tiny.Model(path("tiny"), v, 1) },
		func() error { return tiny.Adapter(path("sql"), 2) },
		func() error { return tiny.Adapter(path("bird"), 3) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
})

func path(name string) string { return filepath.Join(folder, name) }
