package config

import (
	_ "embed" // keys.md
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// keysTable says of every key what it means, in Markdown. docs/configuration.md shows
// it, and the schema and the man page take their descriptions from it.
//
//go:embed keys.md
var keysTable string

// Key is a key of the file. NAME in its path stands for a name of the user's choice.
type Key struct {
	Path    string
	Default string // in Markdown; empty = it has none
	Meaning string // in Markdown
}

// KeysTable is the table of keys in docs/configuration.md.
func KeysTable() string { return keysTable }

// Keys returns every key that takes a value, in the order of the documentation.
func Keys() (list []Key) {
	for line := range strings.Lines(keysTable) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		before := ""
		for _, m := range keyName.FindAllStringSubmatch(cells[0], -1) {
			path := m[1]
			switch {
			case strings.HasPrefix(path, "….admission"):
				path = "pools.NAME" + strings.TrimPrefix(path, "…")
			case strings.HasPrefix(path, "….limits"):
				path = "budgets" + strings.TrimPrefix(path, "…")
			case strings.HasPrefix(path, "….bands"):
				path = "pools.NAME.admission" + strings.TrimPrefix(path, "…")
			case strings.HasPrefix(path, "."):
				path = before[:strings.LastIndexByte(before, '.')] + path
			}
			before = path
			list = append(list, Key{path, strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		}
	}
	return list
}

var keyName = regexp.MustCompile("`([^`]+)`")

// sections are the keys that hold others.
var sections = map[string]string{
	"listen":                              "The agent's own addresses.",
	"session":                             "What a session id is read from.",
	"haproxy":                             "How HAProxy is reached, and choices of the configuration rendered for it.",
	"nginx":                               "Choices of the configuration rendered for nginx.",
	"scan":                                "How request bodies are read.",
	"agent":                               "Where the agent runs, and where it keeps its memory.",
	"record":                              "A trace of the traffic, without text or ids.",
	"cluster":                             "The other agents, with which this one shares what it has reserved.",
	"budgets":                             "Limits of tokens by API key, tenant and model.",
	"budgets.keys":                        "API keys that have a name.",
	"budgets.keys.NAME":                   "An API key.",
	"budgets.limits":                      "The limits, by name, in their order of precedence.",
	"budgets.limits.NAME":                 "A limit: what it counts apart, and for which requests it is.",
	"tracing":                             "Spans of decisions, for OpenTelemetry.",
	"cluster.tls":                         "Certificates for the connections between agents.",
	"models":                              "Other names of models, and shares of pools.",
	"pools":                               "The pools, by name: the replicas that serve the same models.",
	"pools.NAME":                          "A pool: an HAProxy backend or an nginx upstream of the same name.",
	"pools.NAME.kv_events":                "Where the engines publish the events of their KV caches.",
	"pools.NAME.admission.bands":          "Classes of requests, by name, in their order of precedence.",
	"pools.NAME.discover":                 "Where the replicas come from in place of a list.",
	"pools.NAME.health":                   "The agent's own health checks.",
	"pools.NAME.replicas":                 "The replicas by name. None: those of the HAProxy backend of the pool's name.",
	"pools.NAME.replicas.NAME":            "A replica: one engine server of the pool.",
	"pools.NAME.admission.bands.NAME":     "A band: which requests belong to it, and how they wait.",
	"pools.NAME.admission.tenant_weights": "Shares of tenants, by the tenant.",
}

// describer finds the description of a key by its path, in which * stands for a name.
type describer map[string]Key

func newDescriber() describer {
	d := describer{}
	for path, s := range sections {
		d[strings.ReplaceAll(path, "NAME", "*")] = Key{Meaning: s}
	}
	for _, k := range Keys() {
		d[strings.ReplaceAll(k.Path, "NAME", "*")] = k
	}
	return d
}

// of is the description of the key at path, with its default where that is asked for.
func (d describer) of(path string, withDefault bool) string {
	k, ok := d[path]
	if !ok {
		// A replica's own ports are explained with those of its pool.
		k = d[strings.Replace(path, "pools.*.replicas.*.", "pools.*.", 1)]
	}
	s := Plain(k.Meaning)
	if withDefault && k.Default != "" && k.Default != "none" {
		s = strings.TrimSuffix(s, ".") + ". Default: " + Plain(k.Default) + "."
	}
	return s
}

var link = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// Plain is Markdown of one line as plain text.
func Plain(s string) string {
	return strings.ReplaceAll(link.ReplaceAllString(s, "$1"), "`", "")
}

// Options returns the options of a policy, of a struct with yaml tags that has their
// defaults, or nil.
func Options(defaults any) (list []Key) {
	if defaults == nil {
		return nil
	}
	v := reflect.Indirect(reflect.ValueOf(defaults))
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			list = append(list, Key{name, plainDefault(v.Field(i)), f.Tag.Get("help")})
		}
	}
	return list
}

func plainDefault(v reflect.Value) string {
	if v.Kind() != reflect.Map {
		return strings.Replace(fmt.Sprint(defaultOf(v)), "+Inf", ".inf", 1)
	}
	var list []string
	for k, e := range v.Seq2() {
		list = append(list, fmt.Sprintf("%v: %v", k, e))
	}
	slices.Sort(list)
	return "{" + strings.Join(list, ", ") + "}"
}
