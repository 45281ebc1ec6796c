package nginx

import (
	"slices"
	"strings"

	"pointsman/advice"
	"pointsman/templates"
)

// AdvisePrefill checks, for pools with prefill replicas, that the sidecars of the others
// get their names in the header, and that no upstream balances over them. prefill are the
// names of those replicas by address.
func AdvisePrefill(file, header string, prefill map[string]string) ([]advice.Finding, error) {
	root, err := load(file)
	if err != nil {
		return nil, err
	}
	a := &adviser{file: file, upstreams: map[string]*Directive{}}
	root.Walk(func(d *Directive) {
		switch {
		case d.Name == "location" && leads(d, templates.NginxTarget):
			if !slices.ContainsFunc(d.Own("proxy_set_header"), func(h *Directive) bool {
				return len(h.Args) > 1 && strings.EqualFold(h.Args[0], header) && h.Args[1] == "$pm_prefill"
			}) {
				a.say("prefill-header", d, "location "+strings.Join(d.Args, " "), "attach anew, or render the files anew",
					"no proxy_set_header %s: sidecars do not learn who computes a prompt, and their own engines compute all", header)
			}
		case d.Name == "upstream" && len(d.Args) > 0:
			for _, s := range d.Own("server") {
				if len(s.Args) == 0 || slices.Contains(s.Args, "down") || prefill[s.Args[0]] == "" {
					continue
				}
				a.say("prefill-server", s, "upstream "+d.Args[0], "take it out of the upstream: the sidecars of the decode replicas reach it without nginx",
					"%s is replica %s, which only computes prompts: without a decision nginx balances over it too", s.Args[0], prefill[s.Args[0]])
			}
		}
	})
	return a.out, nil
}
