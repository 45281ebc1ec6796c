package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write testdata/refusals.txt anew")

// Each file in testdata/refusals.txt is followed by what it is refused with.
func TestRefusals(t *testing.T) {
	const golden = "testdata/refusals.txt"
	archive, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var in string
	for i, f := range archive.Files {
		if f.Name != "refused" {
			in = string(f.Data)
			continue
		}
		_, err := Parse("pointsman.yaml", []byte(in), nil, checks)
		var many Errors
		if !errors.As(err, &many) || len(many) == 0 {
			t.Errorf("%s: not refused", archive.Files[i-1].Name)
			continue
		}
		if got := err.Error() + "\n"; *update {
			archive.Files[i].Data = []byte(got)
		} else if got != string(f.Data) {
			t.Errorf("%s: got\n%swant\n%s", archive.Files[i-1].Name, got, f.Data)
		}
	}
	if *update {
		if err := os.WriteFile(golden, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A long list of valid choices is cut.
func TestManyPools(t *testing.T) {
	text := "default_pool: none\npools:\n"
	for i := range 50 {
		text += fmt.Sprintf("  p%d: {replicas: {r: {address: 'h:1'}}}\n", i)
	}
	_, err := Parse("f", []byte(text), nil, checks)
	if err == nil || !strings.HasSuffix(err.Error(), ", p28, p29, p30, p31 or one of 18 more") {
		t.Errorf("got %v", err)
	}
}

// What is refused before or after the document itself is read.
func TestRefusedWhole(t *testing.T) {
	bomb := "models: {x: &a [" + strings.Repeat("m, ", 1000) + "]}\npools:\n"
	for i := range 1000 {
		bomb += "  p" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + strings.Repeat("y", i/50) + ": {models: *a}\n"
	}
	for name, tc := range map[string]struct{ text, want string }{
		"large":    {strings.Repeat("#", maxFile+1), "pointsman.yaml: the file is larger than 1MiB"},
		"aliases":  {bomb, "the file has more than 200000 values"},
		"itself":   {"pools: &a {b: *a}\n", `unknown key "b"`},
		"not utf8": {"lease: \xff\n", "pointsman.yaml:1:8: not YAML: "},
	} {
		_, err := Parse("pointsman.yaml", []byte(tc.text), nil, checks)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %.300v, want %s", name, err, tc.want)
		}
	}
}

// A refusal stays readable whatever the file's names are.
func TestRefusalIsOneShortLine(t *testing.T) {
	for _, text := range []string{
		"pools: {\"a\\nb\": {modles: 1}}",
		"pools: {" + strings.Repeat("x", 100_000) + ": {modles: " + strings.Repeat("y", 100_000) + "}}",
		"lease: \"\\e[31m" + strings.Repeat("y", 100_000) + "\"",
	} {
		_, err := Parse("f", []byte(text), nil, checks)
		for _, e := range err.(Errors) {
			if line := e.Error(); len(line) > 400 || strings.ContainsAny(line, "\n\x1b") {
				t.Errorf("got %d bytes: %.300q", len(line), line)
			}
		}
	}
}
