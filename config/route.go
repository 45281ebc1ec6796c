package config

import (
	"reflect"

	"go.yaml.in/yaml/v3"
)

const routeWant = "the name of a pool, or {split: {pool: weight, …}}"

func (r *Route) decode(d *decoder, n *yaml.Node, path string) {
	if isNull(n) {
		return
	}
	if n.Kind == yaml.SequenceNode {
		d.want(n, path, routeWant)
		return
	}
	if n.Kind == yaml.ScalarNode {
		var pool string
		d.scalar(n, path, reflect.ValueOf(&pool).Elem())
		if pool != "" {
			r.Split = map[string]int{pool: 1}
		}
		return
	}
	var form struct {
		Split map[string]int `yaml:"split"`
	}
	d.fields(n, path, reflect.ValueOf(&form).Elem())
	r.Split = form.Split
}
