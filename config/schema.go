package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A schema is a JSON Schema in the form that packages for JSON write.
type schema = map[string]any

// choices are the valid values of strings, by the paths of their keys; * stands for
// any name.
var schemaChoices = map[string][]string{
	"scan.duplicate_models":           DuplicateModels,
	"budgets.unknown_keys":            UnknownKeys,
	"pools.*.engine":                  Engines,
	"pools.*.admission.wait":          Waits,
	"pools.*.admission.matching":      Matchings,
	"pools.*.admission.no_replica":    NoReplicas,
	"pools.*.admission.bands.*.order": Orders,
}

// Schema returns a JSON Schema of the file, for editors: it knows every key, the form
// of its value, its choices and its default. What only a look at the whole file can
// tell, such as the name of a pool that is not there, it accepts. policies are the
// names of the policies, and options returns the default options of one, in a struct
// with yaml tags.
func Schema(policies []string, options func(name string) any) map[string]any {
	g := schemer{policies: policies, options: options, says: newDescriber()}
	s := g.fields(reflect.ValueOf(Default()).Elem(), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "pointsman's configuration"
	s["required"] = []string{"pools"}
	s["properties"].(schema)["pools"].(schema)["minProperties"] = 1
	return s
}

type schemer struct {
	policies []string
	options  func(name string) any
	says     describer
}

// fields is the schema of a struct whose values are the defaults.
func (g schemer) fields(v reflect.Value, path string) schema {
	properties := schema{}
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		s := g.value(v.Field(i), at)
		if n := (writer{}).value(v.Field(i), at); n != nil && n.Value != "" && n.Tag != "" && v.Field(i).Kind() != reflect.Struct {
			s["default"] = defaultOf(v.Field(i))
		}
		if help := cmp.Or(v.Type().Field(i).Tag.Get("help"), g.says.of(at, s["default"] == nil)); help != "" {
			s["description"] = strings.TrimSuffix(help, ".") + "."
		}
		properties[name] = s
	}
	return schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

func defaultOf(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return shortDuration(x)
	case Bytes:
		return x.String()
	}
	return v.Interface()
}

func (g schemer) value(v reflect.Value, path string) schema {
	switch v.Interface().(type) {
	case time.Duration:
		return schema{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`}
	case Bytes:
		return schema{"oneOf": []schema{{"type": "integer", "minimum": 0}, {"type": "string", "pattern": `^[0-9]+(KiB|MiB|GiB)?$`}}}
	case Policy:
		return g.policy()
	case Route:
		split := schema{"type": []string{"object"}, "properties": schema{"split": schema{"type": "object", "description": "The weight of each pool by its name.", "additionalProperties": schema{"type": "integer"}}}, "additionalProperties": false}
		return schema{"oneOf": []schema{str(), split}}
	case Bound:
		return schema{"type": "integer"}
	}
	switch v.Kind() {
	case reflect.Struct:
		return g.fields(v, path)
	case reflect.Map:
		return schema{"type": []string{"object", "null"}, "additionalProperties": g.described(v.Type().Elem(), path+".*")}
	case reflect.Slice:
		return schema{"type": []string{"array", "null"}, "items": g.element(v.Type().Elem(), path+".*")}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int:
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"type": "number"}
	}
	if list, ok := schemaChoices[path]; ok {
		return schema{"enum": append(slices.Clone(list), "")}
	}
	return str()
}

// str is the schema of a string: 3.2 is one too.
func str() schema { return schema{"type": []string{"string", "number"}} }

// described is the schema of what has a name in a map, with its description.
func (g schemer) described(t reflect.Type, path string) schema {
	s := g.element(t, path)
	if help := g.says.of(path, true); help != "" {
		s["description"] = strings.TrimSuffix(help, ".") + "."
	}
	return s
}

// element is the schema of what a map or a list has, with the defaults of a new one.
func (g schemer) element(t reflect.Type, path string) schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := reflect.New(t)
	if b, ok := v.Interface().(beginner); ok {
		b.begin(text(""))
	}
	return g.value(v.Elem(), path)
}

// policy is a name, or an object with the name and the options of that policy.
func (g schemer) policy() schema {
	forms := []schema{{"enum": g.policies}}
	for _, name := range g.policies {
		s := schema{"properties": schema{}}
		if o := g.options(name); o != nil {
			s = g.fields(reflect.Indirect(reflect.ValueOf(o)), "policy")
		}
		s["type"], s["additionalProperties"], s["required"] = "object", false, []string{"name"}
		s["properties"].(schema)["name"] = schema{"const": name, "description": "The policy."}
		forms = append(forms, s)
	}
	forms = append(forms, schema{"type": "null"})
	return schema{"anyOf": forms, "default": DefaultPolicy}
}
