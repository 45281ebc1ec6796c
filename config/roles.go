package config

import (
	"regexp"
	"slices"
	"strings"
)

// The roles of replicas.
const (
	RoleBoth    = "both"    // computes prompts and generates answers
	RolePrefill = "prefill" // computes prompts for others
	RoleDecode  = "decode"  // generates; a sidecar has another replica compute long prompts
)

// Roles are the valid values of Replica.Role.
var Roles = []string{RoleBoth, RolePrefill, RoleDecode}

// Sidecars are the valid values of Pool.Sidecar.
var Sidecars = []string{"llm-d"}

// DefaultPrefillHeader is the header that llm-d's sidecar reads.
const DefaultPrefillHeader = "x-prefiller-host-port"

// sidecarEngines are those that llm-d's sidecar knows.
var sidecarEngines = []string{"", "vllm", "sglang"}

// headerForm is what is taken as the name of a header in the proxies' configurations.
var headerForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func (v *validator) headers() {
	for key, name := range map[string]string{"rank_header": v.config.RankHeader, "prefill_header": v.config.PrefillHeader} {
		if !headerForm.MatchString(name) {
			v.refuse(key, "%s is no header; want letters, digits and -, such as %s", quote(name), DefaultPrefillHeader)
		}
	}
}

// roles checks what a pool says of the roles of its replicas. Engines hand a KV cache
// over in two requests for each of a client's: with kv_transfer_params of the first
// answer in the second request, or with both at the same time and a bootstrap room. A
// proxy sends one, so that something beside the decode replica has to send the other.
func (v *validator) roles(path string, p *Pool) {
	if p.Sidecar != "" {
		v.oneOf(path+".sidecar", p.Sidecar, Sidecars)
	}
	within(v, path+".prefill_tokens", p.PrefillTokens, 0, 100_000_000)
	has := map[string]bool{}
	first := ""
	for _, r := range p.Ordered() {
		at := in(path+".replicas", r.Name) + ".role"
		v.oneOf(at, r.Role, Roles)
		if has[r.Role] = true; r.Role == RolePrefill && first == "" {
			first = at
		}
	}
	if p.Discover.PrefillDNS != "" {
		first = path + ".discover.prefill_dns"
	}
	found := p.findsPrefills()
	switch {
	case first == "" && !found:
		return
	case p.Sidecar == "":
		v.refuse(first, "a prompt computed elsewhere takes two requests for each of a client's, and the proxy sends one; run a sidecar that sends both beside each engine with role decode, give the sidecars' addresses to these replicas, and set the pool's sidecar: %s",
			strings.Join(Sidecars, " or "))
	case !slices.Contains(sidecarEngines, p.Engine):
		if first == "" {
			first = path + ".sidecar"
		}
		v.refuse(first, "%s's sidecar does not know %s: it hands over KV caches of vLLM and SGLang", p.Sidecar, p.Engine)
	case !has[RoleDecode] && !found:
		v.refuse(first, "no replica has the role decode, for which this one could compute prompts")
	case p.DataParallel > 1:
		v.refuse(path+".data_parallel", "the sidecar sends both requests to the same rank; want each rank a server of its own, listed under replicas")
	}
}

// Prefills reports whether the pool has replicas that only compute prompts, or may find
// some.
func (p *Pool) Prefills() bool { return p.findsPrefills() || len(p.Serving()) < len(p.Ranked()) }

// findsPrefills reports whether replicas that only compute prompts may be among those that
// the pool's source has.
func (p *Pool) findsPrefills() bool {
	return p.Sidecar != "" && (p.Discover.File != "" || p.Discover.PrefillDNS != "")
}

// Serving are the replicas of Ranked that the proxy may send requests to: not those that
// only compute prompts.
func (p *Pool) Serving() []*Replica {
	return slices.DeleteFunc(p.Ranked(), func(r *Replica) bool { return r.Role == RolePrefill })
}
