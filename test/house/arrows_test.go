package house

import (
	"slices"
	"strings"
	"testing"
)

// arrows lists what each package may import of ours, and so the direction of
// the dependencies. A package that is not listed may not exist.
var arrows = map[string][]string{
	// Leaves.
	"keyed":     {},
	"prompt":    {"keyed"},
	"session":   {},
	"templates": {},
	"config":    {"decider", "decider/budget", "decider/queue", "engine/metrics", "prompt"}, // for the defaults that they have
	"discover":  {},
	"quiet":     {},         // before libraries start; imports nothing, so that it is first
	"manual":    {},         // man pages and completions, of any command line
	"advice":    {},         // what the readers of configurations find
	"misuse":    {},         // errors in how a command is called
	"attach":    {"misuse"}, // edits of text files, for either proxy
	"listen":    {},
	"loopback":  {},         // free ports, for processes that start later
	"link":      {},         // counts of what passes between a proxy and the agent
	"spoa":      {"listen"}, // transport: frames and connections, no decisions

	// Decisions. Pool imports its parts, never the reverse.
	"decider/kvcache": {"keyed"},
	"decider/queue":   {},
	"decider/budget":  {},
	"decider":         {"decider/budget", "decider/kvcache", "decider/queue", "keyed", "session"}, // never decider/policy
	"decider/policy":  {"decider", "decider/kvcache", "session"},

	"decider/decidertest": {"decider"}, // drives pools in tests

	// Engines.
	"engine/metrics":  {"decider"},
	"engine/zmtp":     {}, // transport: frames and connections
	"engine/kvevents": {"decider", "decider/kvcache", "engine/zmtp", "keyed", "listen", "prompt"},
	"engine/tokenize": {"decider", "decider/kvcache", "keyed", "prompt"},
	"engine":          {"decider", "engine/kvevents", "engine/metrics"},

	// Proxies. haproxy and nginx never import each other.
	"intake":       {"decider", "decider/budget", "engine/tokenize", "prompt", "session"},
	"haproxy":      {"advice", "decider", "intake", "link", "listen", "spoa", "templates"},
	"nginx":        {"advice", "decider", "intake", "link", "listen", "templates"},
	"record":       {"decider"},                                   // traffic, for sim/trace
	"state":        {"decider"},                                   // the agent's memory on disk
	"tracing":      {"intake", "session"},                         // spans of decisions
	"cluster":      {"cluster/wire", "decider", "decider/budget"}, // what agents share
	"cluster/wire": {"decider", "decider/budget"},
	"admin":        {"admin/exposition", "admin/history", "admin/page", "cluster", "decider", "decider/budget", "decider/queue", "intake", "link", "record", "session", "state"},

	// Simulation.
	"sim":          {}, // the engine model alone
	"sim/trace":    {"decider", "decider/kvcache", "intake", "keyed", "misuse", "session"},
	"sim/replay":   {"config", "decider", "decider/kvcache", "decider/policy", "decider/queue", "intake", "sim", "sim/trace"},
	"sim/workload": {"sim/trace"},
	"sim/plot":     {"sim/replay"},
	"sim/fakevllm": {"engine/zmtp", "sim"},

	// Programs.
	"resolve":          {"config", "decider", "decider/budget", "decider/policy", "decider/queue", "discover", "intake", "misuse", "session", "templates"},
	"attach/haproxy":   {"attach", "haproxy", "misuse", "resolve", "templates"},
	"attach/nginx":     {"attach", "misuse", "nginx", "resolve", "templates"},
	"check":            {"admin/client", "advice", "attach", "cluster", "config", "haproxy", "nginx", "resolve", "templates", "tracing"},
	"admin/client":     {"admin", "cluster", "decider", "decider/budget", "engine", "link", "misuse", "state"},
	"admin/history":    {"decider"},
	"admin/page":       {"admin/history", "decider", "link"},
	"admin/exposition": {}, // names, types and texts of metrics
	"agent":            {"admin", "cluster", "config", "decider", "decider/budget", "decider/policy", "discover", "engine", "engine/metrics", "engine/tokenize", "haproxy", "intake", "link", "listen", "nginx", "record", "resolve", "spoa", "state", "tracing"},
	"demo":             {"admin", "config", "decider", "loopback", "misuse", "resolve", "sim", "sim/replay", "sim/trace", "templates"},
	"cmd/pointsman":    {"admin/client", "admin/exposition", "agent", "attach", "attach/haproxy", "attach/nginx", "check", "config", "decider", "decider/policy", "demo", "haproxy", "manual", "misuse", "quiet", "record", "resolve", "sim", "sim/fakevllm", "sim/plot", "sim/replay", "sim/trace", "sim/workload", "templates"},
	"bench/agents":     {"loopback"},
	"bench/grid":       {"decider", "decider/policy", "sim", "sim/replay", "sim/trace", "sim/workload"},
	"bench/overhead":   {"bench/stand", "templates"},
	"bench/peers":      {"bench/stand", "config", "demo", "templates"},
	"bench/stand":      {"loopback", "templates"}, // what benchmarks of whole proxies share
	"bench/workloads":  {"sim/trace"},
	"packaging":        {},
	"packaging/site":   {}, // a module of its own: the documentation site
	"packaging/tools":  {}, // a module of its own: what it needs is not in the program

	// Tests. Nothing imports them but tests.
	"test/inject":    {},
	"test/proxies":   {},
	"test/rig":       {},
	"test/adversary": {},
	"test/house":     {},
	"test/page":      {},
	"test/debian":    {},
	"test/e2e":       {},
	// Models for engines that are not ours.
	"test/engines":      {},
	"test/engines/tiny": {},
}

// ours returns the paths that s imports of our module, without its name.
func (s source) ours() (paths []string) {
	for _, i := range s.file.Imports {
		if path, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "pointsman/"); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestImportsFollowTheArrows(t *testing.T) {
	used := map[string][]string{}
	for _, s := range sources(t) {
		allowed, known := arrows[s.folder]
		if !known {
			t.Errorf("%s: package %s is not in the table of arrows", s.path, s.folder)
		}
		if !s.test {
			used[s.folder] = append(used[s.folder], s.ours()...)
		}
		for _, path := range s.ours() {
			switch {
			case path == "cmd/pointsman" || path == "test/house" || path == "test/page" || path == "test/debian" || path == "test/e2e" || path == "test/engines":
				t.Errorf("%s imports %s, which nothing may import", s.path, path)
			case s.test:
				// Tests may import what helps them; an import cycle does not compile.
				if (s.folder == "haproxy" && path == "nginx") || (s.folder == "nginx" && path == "haproxy") {
					t.Errorf("%s imports %s", s.path, path)
				}
			case !slices.Contains(allowed, path):
				t.Errorf("%s imports %s; %s may import %v", s.path, path, s.folder, allowed)
			}
		}
	}
	for folder, allowed := range arrows {
		for _, path := range allowed {
			if !slices.Contains(used[folder], path) {
				t.Errorf("%s does not import %s: take it out of the table of arrows", folder, path)
			}
		}
	}
}

func TestEachPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		list := comments[s.folder]
		if s.file.Doc != nil {
			list = append(list, s.path)
		}
		comments[s.folder] = list
	}
	for folder, in := range comments {
		if len(in) != 1 {
			t.Errorf("%s: package comments in %v, want exactly one", folder, in)
		}
	}
}
