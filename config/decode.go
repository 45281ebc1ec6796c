package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the values read from one file, so that aliases of aliases
// cannot multiply a few lines into gigabytes.
const maxNodes = 200_000

// decoder fills structs from YAML nodes and collects every refusal instead of
// stopping at the first. It understands structs with yaml tags, maps from
// string, slices, string, bool, int, float64, time.Duration, Bytes and own
// types that decode themselves.
type decoder struct {
	*source
	errs  Errors
	nodes int
}

// own is a type with a form of its own in the file.
type own interface {
	decode(d *decoder, n *yaml.Node, path string)
}

// beginner is a map's value that wants its key and its defaults first.
type beginner interface{ begin(key *yaml.Node) }

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
)

// refuse notes a refusal at the position of n.
func (d *decoder) refuse(n *yaml.Node, path, format string, args ...any) {
	d.errs = append(d.errs, Error{d.file, n.Line, n.Column, path, fmt.Sprintf(format, args...)})
}

// want refuses n for being something else than what is wanted.
func (d *decoder) want(n *yaml.Node, path, what string) {
	d.bad[path] = true
	d.refuse(n, path, "want %s, not %s", what, describe(n))
}

// more counts the values looked at, and says when there are too many.
func (d *decoder) more(n *yaml.Node, path string) bool {
	if d.nodes++; d.nodes == maxNodes+1 {
		d.refuse(n, path, "the file has more than %d values, counting those behind aliases", maxNodes)
	}
	return d.nodes <= maxNodes
}

// value decodes n into v. What cannot be decoded is refused and v left alone.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	n = resolve(n)
	if o, ok := v.Addr().Interface().(own); ok {
		o.decode(d, n, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, path, v)
	case reflect.Map:
		d.entries(n, path, v)
	case reflect.Slice:
		d.list(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

// pairs calls f for each key and value of a mapping; one that is left empty
// has none.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.want(n, path, mapping(path))
		return
	}
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && d.more(n, path); i += 2 {
		key := resolve(n.Content[i])
		if key.ShortTag() == "!!merge" {
			d.refuse(key, path, "merge keys (<<) are not supported; write the values out, or use an alias for the whole mapping")
			continue
		}
		if key.Kind != yaml.ScalarNode || isNull(key) {
			d.want(key, path, "a name as key")
			continue
		}
		if line, ok := first[key.Value]; ok {
			d.refuse(key, path, "duplicate key %s, already on line %d", quote(key.Value), line)
			continue
		}
		first[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
}

// mapping is what a mapping at path looks like, with an example where people
// write a list.
func mapping(path string) string {
	switch {
	case path == "pools":
		return "a mapping (key: value), such as {llama: {models: [llama], replicas: {r1: {address: 10.0.0.1:8000}}}}"
	case strings.HasSuffix(path, ".replicas"):
		return "a mapping (key: value), such as {r1: {address: 10.0.0.1:8000}}"
	}
	return "a mapping (key: value)"
}

// variable is what people write for an environment variable.
var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*(:?-[^}]*)?\}`)

// note remembers where the value at path stands: a scalar by itself, anything
// larger by its key.
func (d *decoder) note(path string, key, value *yaml.Node) {
	n := key
	if value = resolve(value); value.Kind == yaml.ScalarNode && !isNull(value) {
		n = value
	}
	d.at[path] = position{n.Line, n.Column}
}

func (d *decoder) fields(n *yaml.Node, path string, v reflect.Value) {
	var names []string
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			names = append(names, name)
			fields[name] = v.Field(i)
		}
	}
	d.pairs(n, path, func(key, value *yaml.Node) {
		field, ok := fields[key.Value]
		if !ok {
			d.refuse(key, path, "%s", unknown("key ", key.Value, names))
			return
		}
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		d.note(at, key, value)
		d.value(value, at, field)
	})
}

// unknown is the refusal of a name that is none of names.
func unknown(what, name string, names []string) string {
	msg := "unknown " + what + quote(name) + "; "
	if len(names) == 0 {
		return msg + "nothing can be set here"
	}
	if near := nearest(name, names); len(near) > 0 {
		msg += "did you mean " + choices(near) + "? "
	}
	return msg + "want " + choices(names)
}

func (d *decoder) entries(n *yaml.Node, path string, v reflect.Value) {
	elem := v.Type().Elem()
	pointer := elem.Kind() == reflect.Pointer
	if pointer {
		elem = elem.Elem()
	}
	m := reflect.MakeMap(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node) {
		at := in(path, key.Value)
		d.note(at, key, value)
		e := reflect.New(elem)
		if b, ok := e.Interface().(beginner); ok {
			b.begin(key)
		}
		d.value(value, at, e.Elem())
		if !pointer {
			e = e.Elem()
		}
		m.SetMapIndex(reflect.ValueOf(key.Value), e)
	})
	v.Set(m)
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			d.want(n, path, "a list such as ["+quote(n.Value)+"]")
		} else if !isNull(n) {
			d.want(n, path, "a list")
		}
		return
	}
	s := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		if !d.more(n, path) {
			break
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		d.note(at, item, item)
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(item, at, e)
		s = reflect.Append(s, e)
	}
	v.Set(s)
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) {
	tag := n.ShortTag()
	var what string
	var parsed any
	ok := n.Kind == yaml.ScalarNode && tag != "!!null"
	switch {
	case v.Type() == durationType:
		what = "a duration with its unit, 0s or more, such as 250ms, 10s or 1h"
		var err error
		parsed, err = parseDuration(n.Value)
		ok = ok && err == nil
	case v.Type() == bytesType:
		what = "a number of bytes, such as 65536, 64KiB or 1MiB"
		var err error
		parsed, err = parseBytes(n.Value)
		ok = ok && err == nil
	case v.Kind() == reflect.String:
		// 3.2 and 007 are taken as they are written; true would be a surprise.
		what, parsed = "a string", n.Value
		ok = ok && slices.Contains([]string{"!!str", "!!int", "!!float", "!!timestamp"}, tag)
	case v.Kind() == reflect.Int:
		what = "a whole number"
		i, err := strconv.Atoi(n.Value)
		parsed, ok = i, ok && tag == "!!int" && err == nil && strconv.Itoa(i) == n.Value
	case v.Kind() == reflect.Float64:
		what = "a number"
		f, err := strconv.ParseFloat(n.Value, 64)
		parsed, ok = f, ok && (tag == "!!float" || tag == "!!int") && err == nil && f-f == 0
	case v.Kind() == reflect.Bool:
		what, parsed = "true or false", n.Value == "true"
		ok = ok && (n.Value == "true" || n.Value == "false")
	default:
		panic("config: no way to decode a " + v.Type().String())
	}
	if name := variable.FindString(n.Value); name != "" && n.Kind == yaml.ScalarNode {
		d.bad[path] = true
		d.refuse(n, path, "%s: environment variables are not replaced in this file; write the value, or run envsubst on it before", name)
		return
	}
	if !ok {
		d.want(n, path, what)
		return
	}
	v.Set(reflect.ValueOf(parsed).Convert(v.Type()))
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe names what n is, for a refusal.
func describe(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.ScalarNode:
		return quote(n.Value)
	case n.Kind == yaml.SequenceNode:
		return "a list"
	default:
		return "a mapping"
	}
}
