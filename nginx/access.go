package nginx

import (
	"fmt"
	"strings"

	"pointsman/templates"
)

// guards are the directives that let requests in or not. Those of a group replace
// all of the enclosing block's.
var guards = [][]string{{"allow", "deny"}, {"auth_basic"}, {"auth_request"}, {"auth_jwt"}}

// guarded reports access rules of the server that the location d overrides, but that apply
// again in the locations of ours that its requests pass through.
func (a *adviser) guarded(d *Directive) {
	server := d.within("server")
	for _, group := range guards {
		if d.first(group, (*Directive).Own) == nil {
			continue
		}
		for _, t := range a.targets {
			inherited := t.first(group, (*Directive).Effective)
			if t.within("server") != server || inherited == nil || t.first(group, (*Directive).Own) != nil {
				continue
			}
			lift := inherited.Name + " off"
			if len(group) > 1 {
				lift = "allow all"
			}
			a.say("access", inherited, "location "+strings.Join(d.Args, " "),
				fmt.Sprintf("move it into your other locations, or put `%s;` into those of %s; `pointsman attach nginx` does so", lift, templates.NginxServerFile),
				"this %s applies in %s of %s too, whose requests this location has let in by rules of its own", inherited.Name, strings.Join(t.Args, " "), templates.NginxServerFile)
			break
		}
	}
}

// first is the first directive of these names that list finds, or nil.
func (d *Directive) first(names []string, list func(*Directive, string) []*Directive) *Directive {
	for _, name := range names {
		if found := list(d, name); len(found) > 0 {
			return found[0]
		}
	}
	return nil
}
