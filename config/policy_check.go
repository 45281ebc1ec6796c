package config

import (
	"errors"
	"slices"
)

func (v *validator) policy(p *Pool, checks Checks) {
	path := in("pools", p.Name) + ".policy"
	p.Policy.src, p.Policy.path = v.source, path
	if _, ok := v.at[path+".name"]; ok {
		path += ".name"
	}
	if v.bad[path] {
		return
	}
	if len(checks.Policies) > 0 && !slices.Contains(checks.Policies, p.Policy.Name) {
		v.refuse(path, "%s", unknown("", p.Policy.Name, checks.Policies))
		return
	}
	if checks.Policy == nil {
		return
	}
	err := checks.Policy(&p.Policy)
	var many Errors
	var one Error
	switch {
	case errors.As(err, &many):
		v.errs = append(v.errs, many...)
	case errors.As(err, &one):
		v.errs = append(v.errs, one)
	case err != nil:
		v.refuse(path, "%v", err)
	}
}
