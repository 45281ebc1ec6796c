package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// names checks that each model leads to one place, and that the place is there.
func (v *validator) names() {
	c := v.config
	first := map[string]string{}
	claim := func(model, path string) {
		if model == "" || len(model) > 256 || strings.ContainsFunc(model, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			v.refuse(path, "%s is not a model name; want 1 to 256 bytes without control characters", quote(model))
			return
		}
		if other, ok := first[model]; ok {
			v.refuse(path, "model %s is already in %s", quote(model), other)
			return
		}
		first[model] = path
	}
	pools := make([]string, 0, len(c.Pools))
	for _, p := range c.Ordered() {
		pools = append(pools, label(p.Name))
		for i, m := range p.Models {
			claim(m, fmt.Sprintf("%s.models[%d]", in("pools", p.Name), i))
		}
		for i, m := range p.LoRA {
			claim(m, fmt.Sprintf("%s.lora[%d]", in("pools", p.Name), i))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		path := in("models", model)
		claim(model, path)
		if len(c.Models[model].Split) == 0 && !v.bad[path+".split"] {
			v.refuse(path, "want %s", routeWant)
		}
		for _, pool := range slices.Sorted(maps.Keys(c.Models[model].Split)) {
			at := path
			if _, ok := v.at[path+".split"]; ok {
				at = in(path+".split", pool)
			}
			if c.Pools[pool] == nil {
				v.refuse(at, "%s", unknown("pool ", pool, pools))
			}
			within(v, at, c.Models[model].Split[pool], 1, 1_000_000)
		}
	}
	if c.DefaultPool != "" && c.Pools[c.DefaultPool] == nil {
		v.refuse("default_pool", "%s", unknown("pool ", c.DefaultPool, pools))
	}
}
