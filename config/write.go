package config

import (
	"bytes"
	"cmp"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Masked stands in place of a secret.
const Masked = "********"

// password is the part of a URL that nobody should read in a terminal or a browser.
var password = regexp.MustCompile(`(://[^/@\s:]*):[^/@\s]+@`)

var replicaType = reflect.TypeFor[Replica]()

// writer turns a configuration into YAML nodes.
type writer struct {
	options func(*Policy) any
	secrets bool // as they are
}

// Write returns the configuration as YAML, with all defaults and with secrets masked.
// What is not set and has no default is left out: a file of this text means the same.
// options, unless nil, returns the options of a policy with their defaults, in a
// struct with yaml tags.
func (c *Config) Write(options func(*Policy) any) ([]byte, error) {
	return c.write(writer{options: options})
}

func (c *Config) write(w writer) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(w.fields(reflect.ValueOf(c).Elem(), "")); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func plain(tag, s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s} }

// value is the node of v, nil when there is nothing to write.
func (w writer) value(v reflect.Value, path string) *yaml.Node {
	switch x := v.Interface().(type) {
	case time.Duration:
		return text(shortDuration(x))
	case Bytes:
		return text(x.String())
	case Policy:
		return w.policy(&x)
	case Route:
		if len(x.Split) == 1 {
			for pool := range x.Split {
				return text(pool)
			}
		}
		return pair("split", w.value(reflect.ValueOf(x.Split), path))
	case Bound:
		if !x.Set {
			return nil
		}
		return plain("!!int", strconv.Itoa(x.Value))
	case Admission:
		if !x.On {
			return nil
		}
	case Discover:
		if x.DNS == "" && x.File == "" {
			return nil
		}
	case KVEvents:
		if x.Port == 0 && x.Bind == "" {
			return nil
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return w.value(v.Elem(), path)
	case reflect.Struct:
		n := w.fields(v, path)
		if len(n.Content) == 0 {
			return nil
		}
		if _, ok := v.Interface().(Replica); ok {
			n.Style = yaml.FlowStyle
		}
		return n
	case reflect.Map:
		return w.entries(v, path)
	case reflect.Slice:
		if v.Len() == 0 {
			return nil
		}
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			n.Content = append(n.Content, w.value(v.Index(i), path))
		}
		return n
	case reflect.Bool:
		return plain("!!bool", strconv.FormatBool(v.Bool()))
	case reflect.Int:
		return plain("!!int", strconv.FormatInt(v.Int(), 10))
	case reflect.Float64:
		if math.IsInf(v.Float(), 0) {
			return nil // there is no way to write it
		}
		s := strconv.FormatFloat(v.Float(), 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			return plain("!!int", s)
		}
		return plain("!!float", s)
	default:
		return w.text(v.String(), path)
	}
}

// addresses are off when they are empty.
var addresses = []string{"listen.spoe", "listen.nginx", "listen.feed", "listen.admin"}

func (w writer) text(s, path string) *yaml.Node {
	switch {
	case s == "" && slices.Contains(addresses, path):
		return text("off")
	case s == "":
		return nil
	}
	return text(w.mask(s))
}

// mask hides the password in a URL.
func (w writer) mask(s string) string {
	if w.secrets {
		return s
	}
	return password.ReplaceAllString(s, "${1}:"+Masked+"@")
}

// fields writes the fields of a struct in their order. A field with the tag
// secret:"true" is masked.
func (w writer) fields(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		x := w.value(v.Field(i), strings.TrimPrefix(path+"."+name, "."))
		if x == nil || v.Type() == replicaType && v.Field(i).IsZero() {
			continue // zero is the pool's
		}
		if f.Tag.Get("secret") == "true" && !w.secrets {
			x = text(Masked)
		}
		n.Content = append(n.Content, text(name), x)
	}
	return n
}

// entries writes a map in the order of the file where that is known.
func (w writer) entries(v reflect.Value, path string) *yaml.Node {
	if v.Len() == 0 {
		return nil
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		return cmp.Or(cmp.Compare(lineOf(v.MapIndex(a)), lineOf(v.MapIndex(b))), cmp.Compare(a.String(), b.String()))
	})
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range keys {
		if x := w.value(v.MapIndex(k), in(path, k.String())); x != nil {
			n.Content = append(n.Content, text(k.String()), x)
		}
	}
	return n
}

// lineOf is where a map's value stands in the file, in one number.
func lineOf(v reflect.Value) int64 {
	if v.Kind() != reflect.Pointer {
		return 0
	}
	line := v.Elem().FieldByName("line")
	if !line.IsValid() {
		return 0
	}
	return line.Int()<<32 + v.Elem().FieldByName("col").Int()
}

// policy writes a name, or a mapping with the options too.
func (w writer) policy(p *Policy) *yaml.Node {
	var options []*yaml.Node
	if w.options != nil {
		if o := w.options(p); o != nil {
			options = w.fields(reflect.Indirect(reflect.ValueOf(o)), p.path).Content
		}
	} else {
		options = p.options
	}
	if len(options) == 0 {
		return text(p.Name)
	}
	n := pair("name", text(p.Name))
	n.Style = yaml.FlowStyle
	n.Content = append(n.Content, options...)
	return n
}

func pair(key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text(key), value}}
}

// shortDuration writes 10m instead of 10m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}
