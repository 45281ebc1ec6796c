package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/sonic"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"pointsman/config"
	"pointsman/resolve"
)

// examples are the configurations in the documentation, and the one shipped.
func examples(t *testing.T) map[string][]byte {
	t.Helper()
	list := map[string][]byte{}
	shipped, err := os.ReadFile("../../packaging/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list["packaging/pointsman.yaml"] = shipped
	for _, pattern := range []string{"*.md", "policies/*.md", "../README.md"} {
		files, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if filepath.Base(f) == "custom-policy.md" {
				continue // its policy is not built in
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(text, -1) {
				list[fmt.Sprintf("%s, %d", f, i)] = m[1]
			}
		}
	}
	return list
}

func validator(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pointsman.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("pointsman.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance is a YAML text as editors hand it to a schema.
func instance(text []byte) (any, error) {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	b, err := sonic.ConfigStd.Marshal(plain(doc))
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
}

// plain has keys that are strings, and no times.
func plain(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			x[k] = plain(x[k])
		}
	case map[any]any:
		m := map[string]any{}
		for k, e := range x {
			m[fmt.Sprint(k)] = plain(e)
		}
		return m
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
	case time.Time:
		return x.String()
	}
	return v
}

// The schema accepts what the documentation shows and what `config` prints.
func TestSchemaAcceptsExamples(t *testing.T) {
	s := validator(t)
	n := 0
	for name, text := range examples(t) {
		c, err := config.Parse(name, text, nil, checks)
		if err != nil {
			continue // of what is not a whole file, tested elsewhere
		}
		r, err := resolve.Resolve(c, resolve.Options{Policies: policies})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		printed, err := r.Write()
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.Parse("printed", printed, nil, checks)
		if err != nil {
			t.Errorf("%s is printed as\n%s\n%v", name, printed, err)
			continue
		}
		if r, err := resolve.Resolve(again, resolve.Options{Policies: policies}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if twice, err := r.Write(); err != nil || string(twice) != string(printed) {
			t.Errorf("%s is printed as\n%s\nand then as\n%s", name, printed, twice)
		}
		for _, x := range [][]byte{text, printed} {
			n++
			if doc, err := instance(x); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if err := s.Validate(doc); err != nil {
				t.Errorf("%s:\n%s\n%v", name, x, err)
			}
		}
	}
	if n < 2*len(policies) {
		t.Errorf("%d examples", n)
	}
}

// The schema refuses what the reader refuses for its form: unknown keys and values of
// another type.
func TestSchemaRefuses(t *testing.T) {
	archive, err := txtar.ParseFile("../../config/testdata/refusals.txt")
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`unknown key|want (a whole number|a string|a list|a mapping|a number|a duration|true or false)[^;]*, not `)
	s := validator(t)
	n := 0
	for i, f := range archive.Files {
		if f.Name != "refused" || !form.Match(f.Data) {
			continue
		}
		doc, err := instance(archive.Files[i-1].Data)
		if err != nil {
			continue // no YAML at all, or a key twice
		}
		n++
		if s.Validate(doc) == nil {
			t.Errorf("%s is accepted, and the reader says\n%s", archive.Files[i-1].Name, f.Data)
		}
	}
	for text, good := range map[string]bool{
		"pools: {a: {policy: {name: session, fallbacks: 1}}}":           true,
		"pools: {a: {policy: {name: least_work, fallbacks: 1}}}":        false,
		"pools: {a: {policy: nonsense}}":                                false,
		"pools: {a: {engine: vlm}}":                                     false,
		"pools: {a: {retry_after: 10}}":                                 false,
		"pools: {a: {replicas: {r1: {address: 'h:1', weight: heavy}}}}": false,
		"pools: {}": false,
		"{}":        false,
	} {
		doc, err := instance([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	if n < 5 {
		t.Errorf("%d refusals", n)
	}
}
