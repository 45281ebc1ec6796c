package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bytedance/sonic"

	"pointsman/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

// Every key of the schema has a description, those of the policies too, and every key
// that is described is in the schema.
func TestEveryKeyIsDescribed(t *testing.T) {
	text, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := sonic.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			there[at] = true
			said, _ := p.(map[string]any)["description"].(string)
			if len(said) < 8 || strings.Contains(said, "](") {
				t.Errorf("%s: described as %q: see config/keys.md", at, said)
			}
			walk(at, p.(map[string]any))
		}
		if more, ok := s["additionalProperties"].(map[string]any); ok {
			there[path+".NAME"] = true
			walk(path+".NAME", more)
		}
		for _, form := range []string{"anyOf", "oneOf"} {
			list, _ := s[form].([]any)
			for _, one := range list {
				walk(path, one.(map[string]any))
			}
		}
	}
	walk("", s)
	keys := config.Keys()
	if len(keys) < 80 {
		t.Errorf("%d keys", len(keys))
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if !there[k.Path] {
			t.Errorf("config/keys.md: there is no key %s", k.Path)
		}
		if seen[k.Path] {
			t.Errorf("config/keys.md: %s stands twice", k.Path)
		}
		seen[k.Path] = true
	}
}

// docs/configuration.md shows the table of keys: -update writes it.
func TestDocumentedKeys(t *testing.T) {
	path := filepath.Join(docs, "configuration.md")
	text := page(t, "configuration.md")
	begin := strings.Index(text, "| key | default | meaning |")
	end := begin + strings.Index(text[begin:], "\n\n") + 1
	if begin < 0 || end <= begin {
		t.Fatal("no table")
	}
	if text[begin:end] == config.KeysTable() {
		return
	}
	if !*update {
		t.Fatal("docs/configuration.md differs from config/keys.md: go test ./cmd/pointsman -run TestDocumentedKeys -update")
	}
	if err := os.WriteFile(path, []byte(text[:begin]+config.KeysTable()+text[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}
