package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Policy names how a pool orders its replicas and holds the policy's own
// options until its constructor decodes them. In the file it is a name, or
// {name: session, fallbacks: 2}.
type Policy struct {
	Name string

	src     *source
	path    string
	options []*yaml.Node // keys and values, without the name
}

func (p *Policy) decode(d *decoder, n *yaml.Node, path string) {
	p.src, p.path = d.source, path
	if isNull(n) {
		return
	}
	name := reflect.ValueOf(&p.Name).Elem()
	if n.Kind == yaml.SequenceNode {
		d.want(n, path, "the name of a policy, or {name: …} with its options")
		return
	}
	if n.Kind == yaml.ScalarNode {
		d.scalar(n, path, name)
		return
	}
	named := false
	d.pairs(n, path, func(key, value *yaml.Node) {
		d.note(path+"."+key.Value, key, value)
		if key.Value == "name" {
			named = true
			d.value(value, path+".name", name)
			return
		}
		p.options = append(p.options, key, value)
	})
	if !named {
		d.bad[path] = true
		d.refuse(n, path, "a policy with options needs its name, such as {name: session, fallbacks: 2}")
	}
}

// Decode reads the options into the struct that into points to, by its yaml
// tags; what the file does not set keeps its value. Options that the struct
// does not have, or of another type, are refused as Errors with positions.
func (p *Policy) Decode(into any) error {
	d := decoder{source: newSource("")}
	if p.src != nil {
		d.file = p.src.file
	}
	d.fields(&yaml.Node{Kind: yaml.MappingNode, Content: p.options}, p.path, reflect.ValueOf(into).Elem())
	if len(d.errs) > 0 {
		return d.errs.sorted()
	}
	return nil
}

// Flow is the policy as the file has it, in one line: its name, or {name: session,
// fallbacks: 2}.
func (p *Policy) Flow() string {
	if len(p.options) == 0 {
		return p.Name
	}
	n := pair("name", text(p.Name))
	for _, o := range p.options {
		n.Content = append(n.Content, inFlow(o))
	}
	n.Style = yaml.FlowStyle
	line, err := yaml.Marshal(n)
	if err != nil {
		panic(err) // what was read can be written
	}
	return strings.TrimSuffix(string(line), "\n")
}

// inFlow copies a node without comments and aliases, for a line of its own.
func inFlow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: n.Style &^ (yaml.LiteralStyle | yaml.FoldedStyle)}
	if strings.ContainsAny(n.Value, "\n") {
		c.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		c.Content = append(c.Content, inFlow(child))
	}
	return c
}

// Refuse returns an error at the position of an option whose value is of the
// right type but not valid.
func (p *Policy) Refuse(option, format string, args ...any) error {
	return p.src.errorAt(p.path+"."+option, format, args...)
}
