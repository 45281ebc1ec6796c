// Package config reads pointsman's one YAML file. It is strict: whatever it
// does not understand is refused with file, line and column, every refusal at
// once and each naming the valid choice.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/engine/metrics"
	"pointsman/prompt"
)

// DefaultPolicy orders the replicas of a pool that names no policy.
const DefaultPolicy = "least_work"

// DefaultSpill is the default of Pool.Spill: that of Ray for adapters.
const DefaultSpill = 64

// DefaultAdmin is the default of Listen.Admin.
const DefaultAdmin = "127.0.0.1:9909"

// Config is one file, checked and with defaults filled in. It is not changed
// after Parse returns it, so it may be read from several goroutines.
type Config struct {
	Listen  Listen  `yaml:"listen"`
	Session Session `yaml:"session"`
	HAProxy HAProxy `yaml:"haproxy"`
	Nginx   Nginx   `yaml:"nginx"`
	Scan    Scan    `yaml:"scan"`
	Agent   Agent   `yaml:"agent"`
	Record  Record  `yaml:"record"`
	Cluster Cluster `yaml:"cluster"`
	Budgets Budgets `yaml:"budgets"`
	Tracing Tracing `yaml:"tracing"`
	// Mode is that of the pools without one of their own.
	Mode string `yaml:"mode"`
	// Lease is how long a reservation lives without news of its request.
	Lease time.Duration `yaml:"lease"`
	// DefaultPool takes requests for unknown models and those whose model
	// cannot be seen. Empty: an unknown model is a 404, and an unseen one goes
	// to the first pool, as it does without the agent.
	DefaultPool string `yaml:"default_pool"`
	// RankHeader names the header of requests that says which rank of an engine is to
	// serve it, for pools with data_parallel.
	RankHeader string `yaml:"rank_header"`
	// PrefillHeader names the header of requests in which a decode replica's sidecar finds
	// the replica that computes the prompt.
	PrefillHeader string `yaml:"prefill_header"`
	// ListModels has the proxies answer GET /v1/models with the models of all pools.
	ListModels bool `yaml:"list_models"`
	// Models are names that lead to a pool other than by its own Models list.
	Models map[string]Route `yaml:"models"`
	Pools  map[string]*Pool `yaml:"pools"`

	src *source
}

// Listen holds the agent's own addresses, each in a form that ParseAddress
// takes, or empty when it is turned off (written "off" or "").
type Listen struct {
	SPOE  string `yaml:"spoe"`  // where HAProxy asks
	Nginx string `yaml:"nginx"` // where nginx asks; off by default
	Feed  string `yaml:"feed"`  // where HAProxy's ring sends its log lines, and nginx over UDP
	Admin string `yaml:"admin"` // metrics, health, explain
	// AdminHosts are names under which Admin is asked, besides addresses and names
	// without a dot.
	AdminHosts []string `yaml:"admin_hosts"`
	// SocketMode and SocketGroup are those of the unix sockets that the agent makes:
	// "0660", and a group's name or number, empty = that of the agent.
	SocketMode  string `yaml:"socket_mode"`
	SocketGroup string `yaml:"socket_group"`
}

// DefaultSocketMode is the default of Listen.SocketMode.
const DefaultSocketMode = "0660"

// Mode is SocketMode as a number.
func (l *Listen) Mode() os.FileMode {
	n, err := strconv.ParseUint(l.SocketMode, 8, 32)
	if err != nil {
		return 0o660 // refused by Parse
	}
	return os.FileMode(n)
}

// Session says what a session id is read from.
type Session struct {
	// Headers are tried in order, the first that a request carries wins.
	Headers []string `yaml:"headers"`
	// Body are the fields of the body that are tried after that, likewise.
	Body []string `yaml:"body"`
}

// HAProxy holds what concerns the proxy: how to reach its runtime API, and the
// choices of the configuration rendered for it.
type HAProxy struct {
	RuntimeAPI string `yaml:"runtime_api"` // in a form that ParseAddress takes, empty = none
	Version    string `yaml:"version"`     // to render for, as "3.2"; empty = ask the installed binary
	Bufsize    Bytes  `yaml:"bufsize"`     // tune.bufsize
	// LargeBufsize is tune.bufsize.large, from HAProxy 3.4 on; 0 = off.
	LargeBufsize Bytes  `yaml:"large_bufsize"`
	Bind         string `yaml:"bind"` // the frontend of the complete set, as ":8080"
	// Poll is the interval at which the runtime API is polled.
	Poll time.Duration `yaml:"poll"`
	// ProcessingTimeout is the longest that a request waits for a decision. On
	// HAProxy 2.6 it is also what each request pays while the agent is dead,
	// until the check has marked it DOWN; 3.x notices at once.
	ProcessingTimeout time.Duration `yaml:"processing_timeout"`
	// BodyPriority lets the priority in a request's body set its place in HAProxy's
	// queues, where no admission does.
	BodyPriority bool `yaml:"body_priority"`
	// RetrySent sends a request again whose replica closed the connection before its
	// answer: to the same replica or, if that refuses it, to another one, although the
	// first may have begun it. Connections to replicas are then kept.
	RetrySent bool `yaml:"retry_sent"`
}

// Nginx holds what concerns nginx: the choices of the configuration rendered
// for it, and what the agent may do with a request that failed.
type Nginx struct {
	Bind string `yaml:"bind"` // the server of the complete set, as ":8080"
	// ProcessingTimeout is the longest that a request waits for a decision.
	ProcessingTimeout time.Duration `yaml:"processing_timeout"`
	// BodyBuffer is how much of a body nginx holds in memory.
	BodyBuffer Bytes `yaml:"body_buffer"`
	// RetrySent gives a request that failed at one replica to a second one,
	// although the first may have begun it.
	RetrySent bool `yaml:"retry_sent"`
}

// Discover says where a pool's replicas come from in place of a list: a DNS
// name whose addresses they are, or a file of targets. One of the two.
type Discover struct {
	DNS  string `yaml:"dns"`  // name:port
	File string `yaml:"file"` // absolute path, in Prometheus' file_sd format
	// PrefillDNS is the name:port of replicas that compute prompts for those of DNS.
	PrefillDNS string `yaml:"prefill_dns"`
	// Poll is the interval at which the source is read.
	Poll time.Duration `yaml:"poll"`
}

// Health says how the agent itself checks the health of a pool's replicas. With
// Poll 0 it does not.
type Health struct {
	Poll time.Duration `yaml:"poll"` // the interval
	Path string        `yaml:"path"` // of the request
}

// Scan bounds how much of a request body is scanned.
type Scan struct {
	Limit Bytes `yaml:"limit"` // bytes of one body
	// DuplicateModels says what happens to a body that names two different models:
	// one of DuplicateModels.
	DuplicateModels string `yaml:"duplicate_models"`
}

// Agent says where the agent itself runs, in the words of Replica.Node and
// Replica.Zone, for the pools that prefer replicas nearby. Empty = not known.
type Agent struct {
	Node string `yaml:"node"`
	Zone string `yaml:"zone"`
	// StateDir is the directory in which the agent keeps its memory over a restart:
	// an absolute path, "off", or empty for that which systemd names.
	StateDir string `yaml:"state_dir"`
}

// Record says where an anonymised trace of the traffic is written. Without a file it
// is not.
type Record struct {
	File     string `yaml:"file"`      // an absolute path that ends in .gz
	MaxSize  Bytes  `yaml:"max_size"`  // of a file; the next lines go to a new one
	MaxFiles int    `yaml:"max_files"` // that are kept
}

// Route is where a model's requests go: the weight of each pool by its name.
// The weights are positive and need not add up to anything. In the file it is
// the name of one pool, or {split: {llama: 90, llama-canary: 10}}.
type Route struct {
	Split map[string]int
}

// Pool is the replicas that serve the same models, an HAProxy backend of the
// same name.
type Pool struct {
	Name   string   `yaml:"-"`
	Models []string `yaml:"models"`
	LoRA   []string `yaml:"lora"` // adapters that its replicas can load, asked for as models
	Policy Policy   `yaml:"policy"`
	Mode   string   `yaml:"mode"`   // of decisions; "" = that of the file
	Engine string   `yaml:"engine"` // one of Engines, or empty when not known
	// Metrics is where the engines show their metrics: a path, or a port and a
	// path as :8002/metrics. Empty: where engines of the kind do, or any of
	// the usual places. "off": they are not asked.
	Metrics string `yaml:"metrics"`
	// DataParallel is how many copies of the model each engine runs, its ranks. More
	// than one are replicas of their own.
	DataParallel int `yaml:"data_parallel"`
	// Sidecar is what has prompts computed on the replicas with the role prefill: one of
	// Sidecars, or empty for nothing.
	Sidecar string `yaml:"sidecar"`
	// PrefillTokens has prompts computed there of which the decode replica lacks so many
	// tokens; 0 = where it takes less time.
	PrefillTokens int `yaml:"prefill_tokens"`
	// KVEvents says where the engines publish the events of their KV caches.
	KVEvents KVEvents `yaml:"kv_events"`
	// Replicas by name. Empty: they are taken from the HAProxy backend of the
	// pool's name, through the runtime API, unless Discover says where from.
	Replicas map[string]*Replica `yaml:"replicas"`
	Discover Discover            `yaml:"discover"`
	Health   Health              `yaml:"health"`
	// MaxRequests is the most requests in flight at one replica, 0 = no limit.
	MaxRequests int `yaml:"max_requests"`
	// CacheTokens is the size of a replica's KV cache in tokens, for policies
	// that follow prefixes; 0 = not known. A value reported by the engine overrides
	// it.
	CacheTokens int `yaml:"cache_tokens"`
	// CPUCacheTokens is what a replica's host keeps of what leaves its GPU's cache, in
	// tokens, for policies that predict caches; 0 = nothing.
	CPUCacheTokens int `yaml:"cpu_cache_tokens"`
	// ContextTokens is the context length of the pool's models, in tokens: what
	// clients claim of prompts and answers is bounded by it. 0 = as the engines
	// report it.
	ContextTokens int `yaml:"context_tokens"`
	// RetryAfter is sent to clients, with a 503, while no replica of the pool is
	// up; 0 = the proxy answers as it would alone.
	RetryAfter time.Duration `yaml:"retry_after"`
	// SlowStart is how long a new replica's share grows to its full size.
	SlowStart time.Duration `yaml:"slow_start"`

	Admission Admission `yaml:"admission"`

	// The filters that narrow the choice before the policy makes it.
	StickySessions bool `yaml:"sticky_sessions"` // to the session's last replica
	LoRAAffinity   bool `yaml:"lora_affinity"`   // to replicas that have the adapter
	Locality       bool `yaml:"locality"`        // to the agent's node, then its zone
	// Spill bounds the filters: a filter is skipped while the least loaded replica
	// that it leaves has more than this many requests above the least loaded one
	// of the pool.
	Spill int `yaml:"spill"`
	// LoRASlots is how many adapters an engine keeps loaded at a time.
	LoRASlots int `yaml:"lora_slots"`

	line, col int
}

// KVEvents are ports of the engines, on the replicas' hosts, or an address of
// the agent's own.
type KVEvents struct {
	Port   int    `yaml:"port"`   // of the first rank; 0 = none are published
	Replay int    `yaml:"replay"` // where past events are asked for; 0 = nowhere
	Ranks  int    `yaml:"ranks"`  // of data parallelism; their ports follow one another
	Bind   string `yaml:"bind"`   // host:port that the engines connect to, instead of port
}

// Replica is one engine server of a pool.
type Replica struct {
	Name    string `yaml:"-"`
	Address string `yaml:"address"` // host:port
	Zone    string `yaml:"zone"`
	Node    string `yaml:"node"`
	Role    string `yaml:"role"`   // one of Roles
	Weight  int    `yaml:"weight"` // 1 to 256, as HAProxy's
	// MaxRequests overrides the pool's; 0 = the pool's.
	MaxRequests int `yaml:"max_requests"`
	// CacheTokens overrides the pool's; 0 = the pool's.
	CacheTokens int `yaml:"cache_tokens"`
	// Rank is which of the copies inside the engine it is, from 1 on; 0 = the engine
	// has one. Ranked sets it.
	Rank int `yaml:"-"`
	// KVEvents overrides the pool's, except for bind; port 0 = the pool's.
	KVEvents KVEvents `yaml:"kv_events"`

	line, col int
}

// DuplicateModels are the valid values of Scan.DuplicateModels: the last one counts,
// as in most decoders, or the request is refused.
var DuplicateModels = []string{"last", "refuse"}

// Engines are the valid values of Pool.Engine.
var Engines = metrics.KindNames()

// Default is the configuration of an empty file. It has no pool, which Parse
// refuses.
func Default() *Config {
	return &Config{
		Listen: Listen{
			SPOE:  "unix:///run/pointsman/spoe.sock",
			Feed:  "tcp://127.0.0.1:9901",
			Admin: DefaultAdmin,

			AdminHosts: []string{},
			SocketMode: DefaultSocketMode,
		},
		RankHeader: DefaultRankHeader, PrefillHeader: DefaultPrefillHeader,
		Session: Session{Headers: slices.Clone(sessionHeaders), Body: slices.Clone(SessionFields)},
		HAProxy: HAProxy{
			Bufsize:           128 << 10,
			Bind:              ":8080",
			Poll:              250 * time.Millisecond,
			ProcessingTimeout: 50 * time.Millisecond,
			RetrySent:         true,
		},
		Nginx: Nginx{
			Bind:              ":8080",
			ProcessingTimeout: 100 * time.Millisecond,
			BodyBuffer:        1 << 20,
			RetrySent:         true,
		},
		Scan:   Scan{Limit: prompt.DefaultLimit, DuplicateModels: "last"},
		Record: Record{MaxSize: 100 << 20, MaxFiles: 5},
		Budgets: Budgets{
			KeyHeaders: slices.Clone(budgetKeyHeaders), MaxAccounts: budget.DefaultMostAccounts,
			Keys: map[string]*BudgetKey{}, Limits: map[string]*BudgetLimit{},
		},
		Tracing: Tracing{Sample: DefaultSample},
		Lease:   decider.DefaultLease,
		Mode:    ModeDecide,
	}
}

// DefaultRankHeader is the header that vLLM and SGLang read.
const DefaultRankHeader = "X-data-parallel-rank"

// Ordered returns the pools in the order of the file.
func (c *Config) Ordered() []*Pool {
	return slices.SortedFunc(maps.Values(c.Pools), func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col), cmp.Compare(a.Name, b.Name))
	})
}

// Ordered returns the replicas in the order of the file.
func (p *Pool) Ordered() []*Replica {
	return slices.SortedFunc(maps.Values(p.Replicas), func(a, b *Replica) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col), cmp.Compare(a.Name, b.Name))
	})
}

// Ranked returns the replicas in the order of the file, with one for each rank of an
// engine that has several: NAME-dp0, NAME-dp1 and so on, at the same address.
func (p *Pool) Ranked() []*Replica {
	list := p.Ordered()
	if p.DataParallel < 2 {
		return list
	}
	all := make([]*Replica, 0, len(list)*p.DataParallel)
	for _, r := range list {
		for rank := range p.DataParallel {
			own := *r
			own.Name, own.Rank = fmt.Sprintf("%s-dp%d", r.Name, rank), rank+1
			if own.KVEvents.Port == 0 {
				own.KVEvents = p.KVEvents
				own.KVEvents.Bind = ""
			}
			own.KVEvents.Ranks = 1
			if own.KVEvents.Port > 0 {
				own.KVEvents.Port += rank
			}
			if own.KVEvents.Replay > 0 {
				own.KVEvents.Replay += rank
			}
			all = append(all, &own)
		}
	}
	return all
}

func (p *Pool) begin(key *yaml.Node) {
	p.Name, p.line, p.col = key.Value, key.Line, key.Column
	p.Policy.Name = DefaultPolicy
	p.DataParallel = 1
	p.Spill, p.LoRASlots = DefaultSpill, decider.DefaultLoRASlots
	p.Discover.Poll, p.Health.Path = 5*time.Second, "/health"
	p.KVEvents.Ranks = 1
}

func (r *Replica) begin(key *yaml.Node) {
	r.Name, r.line, r.col = key.Value, key.Line, key.Column
	r.Weight, r.Role = 1, RoleBoth
	r.KVEvents.Ranks = 1
}
