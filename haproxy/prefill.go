package haproxy

import (
	"slices"
	"strings"
)

// prefill checks, for pools with prefill replicas, that the sidecars of the others get
// their names, and that no backend balances over them.
func (a *adviser) prefill() {
	if a.PrefillHeader == "" {
		return
	}
	for _, s := range a.sections {
		if len(s.lines) == 0 || s.lines[0].file == a.Ours {
			continue
		}
		if b := a.block(s); b != nil && b.send != nil && b.filter != nil {
			if !slices.ContainsFunc(s.lines, func(l rule) bool {
				return l.Is("http-request", "set-header") && strings.EqualFold(l.Arg(2), a.PrefillHeader) && strings.Contains(l.Text(), "txn.pm.prefill")
			}) {
				a.say("prefill-header", s, b.send, "attach anew, or add below it http-request set-header "+a.PrefillHeader+" %[var(txn.pm.prefill)] if { var(txn.pm.prefill) -m found }",
					"no set-header %s: sidecars do not learn who computes a prompt, and their own engines compute all", a.PrefillHeader)
			}
			if !slices.ContainsFunc(s.lines, func(l rule) bool {
				return l.Is("http-request", "del-header") && strings.EqualFold(l.Arg(2), a.PrefillHeader)
			}) {
				a.say("prefill-forged", s, b.send, "attach anew, or add http-request del-header "+a.PrefillHeader+" before the lines that ask",
					"no del-header %s: a client can have a sidecar send its prompt to any address", a.PrefillHeader)
			}
		}
		if !slices.Contains(a.Pools, s.name) || !s.balances() {
			continue
		}
		for _, l := range s.own("server") {
			name, ok := a.Prefill[strings.TrimPrefix(strings.TrimPrefix(l.Arg(2), "ipv4@"), "ipv6@")]
			if i := slices.Index(l.Words, "weight"); !ok || i > 0 && l.Arg(i+1) == "0" {
				continue
			}
			a.say("prefill-server", s, l, "take it out of the backend, or give it weight 0: the sidecars of the decode replicas reach it without HAProxy",
				"server %s is replica %s, which only computes prompts: without a decision HAProxy balances over it too", l.Arg(1), name)
		}
	}
}
