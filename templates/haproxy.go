package templates

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// HAProxy says what to render for one HAProxy. Zero numbers and durations take
// the defaults named at each field; empty strings are refused unless the field
// says otherwise.
type HAProxy struct {
	// Version decides which keywords are used. Oldest is the lower bound.
	Version Version

	// Bind is the address of the new frontend in HAProxy's form, for instance
	// "*:8080". Attaching does not use it.
	Bind string

	// RankHeader names the header that tells an engine which of its ranks is to serve a
	// request; "" = no engine has ranks.
	RankHeader string

	// PrefillHeader names the header in which a sidecar finds the replica that computes the
	// prompt. Nothing that a client sends under this name is passed on. Prefills says
	// whether there are such replicas, so that it is set.
	PrefillHeader string
	Prefills      bool

	// AgentAddress is where the agent answers SPOE: "unix:///run/x.sock",
	// "tcp://127.0.0.1:9900" or "127.0.0.1:9900".
	AgentAddress string

	// FeedAddress is where the agent reads the feed, in the same forms.
	FeedAddress string

	// SPOEConf is the path under which HAProxy will find pointsman-spoe.conf.
	SPOEConf string

	// RuntimeAPI is the socket of the new HAProxy's runtime API, in the same
	// forms; empty leaves it out. Attaching does not use it.
	RuntimeAPI string

	// User is the account, and the group of the same name, that the new
	// HAProxy drops to; empty leaves it as it was started. Attaching does not
	// use it.
	User string

	// Bufsize is tune.bufsize in bytes. It bounds how much of a request the
	// agent sees, never how much the replica gets.
	Bufsize int

	// LargeBufsize is tune.bufsize.large in bytes. It needs HAProxy 3.4: the
	// agent then sees head and tail of a body up to this size. 0 is off.
	LargeBufsize int

	// RetrySent lets HAProxy send a request again when its replica closed the
	// connection before its answer, to at most one other replica, and keep connections
	// to replicas. It applies to pools with a list of replicas, or whose servers the agent
	// adds, and with health checks if there are several.
	RetrySent bool

	// ProcessingTimeout is how long a request waits for a decision before it
	// goes on without one. Before 3.1 a request pays all of it when its agent
	// has just died. It must exceed the longest hold of an admission.
	ProcessingTimeout time.Duration

	// BodyTimeout is how long a client may take to send its body, or as much of it as
	// the buffer holds. Default 30 s. Before 3.0 holds make it longer; see BodyWait.
	BodyTimeout time.Duration

	// ServerTimeout is how long a replica may be silent. Default 600 s.
	ServerTimeout time.Duration

	// Budgets tells clients how many tokens they have left, in x-ratelimit headers.
	Budgets bool

	// ListModels answers GET /v1/models with the list of models that the agent has.
	ListModels bool

	// Waiting is how many requests may wait for a replica, in the agent or in
	// the proxy, beyond those that run.
	Waiting int

	// Pools become HAProxy backends of the same names.
	Pools []Pool

	// DefaultPool takes what names no known model while the agent is away. The
	// first pool by default.
	DefaultPool string
}

// Pool is the set of replicas that serve the same models.
type Pool struct {
	Name string

	// Models are the names that requests may use for this pool: models,
	// aliases and LoRA adapters. They route requests while the agent is away.
	Models []string

	// Replicas may be empty: a new install then gets a backend to which
	// servers are added at run time, and attaching leaves the servers in the
	// user's own backend of the pool's name.
	Replicas []Replica

	// Discovered says that the agent adds the pool's servers at run time, as AddServer has
	// them.
	Discovered bool

	// QueueTimeout is the longest that a request may wait in HAProxy's queues.
	// Default 60 s.
	QueueTimeout time.Duration

	// AdmissionHeaders sends clients the band of their request and how long it was
	// held, in the headers X-Pointsman-Band and X-Pointsman-Wait-Ms.
	AdmissionHeaders bool

	// HealthPath is what HAProxy asks of each replica every 2 s. Default
	// "/health"; "none" turns the checks off.
	HealthPath string
}

// Replica is one engine server.
type Replica struct {
	Name    string
	Address string // host:port
	Weight  int    // HAProxy's 1..256; 0 leaves HAProxy's default
	MaxConn int    // requests at once, the rest queue in HAProxy; 0 is no bound
}

// DefaultPrefillHeader is the header that llm-d's sidecar reads.
const DefaultPrefillHeader = "x-prefiller-host-port"

// File is a rendered file. Name has no folder.
type File struct{ Name, Text string }

// Snippet is what to paste into a configuration that exists already. Where is
// the section: "global", "defaults", "frontend" or "backend NAME". Text is whole
// lines with their comments. An optional one improves the feed, at a price that
// its comment names.
type Snippet struct {
	Where, Text string
	Optional    bool
}

// Names of what the rendered files define.
const (
	ConfigFile   = "haproxy.cfg"         // a new install's configuration
	AttachedFile = "pointsman.cfg"       // loaded with a further -f
	SPOEFile     = "pointsman-spoe.conf" // to be installed at HAProxy.SPOEConf
	AgentBackend = "pointsman-agent"     // the backend that leads to the agent
	Ring         = "pointsman-ring"      // the ring that carries the feed
	FeedMarker   = "PM1"                 // the word before the fields of a feed line, its first
	FeedEnd      = "PM."                 // the word after them
	FeedChat     = "completions"         // how the path of a chat ends, in a feed line
	maxName      = 64                    // bytes of a pool's or replica's name
	minBufsize   = 16 << 10              // HAProxy's own default
	maxBufsize   = 64 << 20              // beyond it two buffers a request are absurd
)

// RenderHAProxy renders the whole configuration of a new HAProxy: ConfigFile
// and SPOEFile. The error lists everything that is wrong with o.
func RenderHAProxy(o HAProxy) ([]File, error) {
	v, err := o.view(true)
	if err != nil {
		return nil, err
	}
	return render(v, map[string]string{ConfigFile: "haproxy.cfg.tmpl", SPOEFile: "spoe.conf.tmpl"})
}

// AttachHAProxy renders what an HAProxy that exists needs: AttachedFile, to be
// loaded with a further -f after the user's own, SPOEFile, and the lines to
// paste, in the order of the user's file. A single pool with replicas gets the
// SPOE filter in its own backend; otherwise the filter goes into the user's
// frontend and the decision names the backend. The error lists everything that
// is wrong with o.
func AttachHAProxy(o HAProxy) ([]File, []Snippet, error) {
	v, err := o.view(false)
	if err != nil {
		return nil, nil, err
	}
	files, err := render(v, map[string]string{AttachedFile: "attached.cfg.tmpl", SPOEFile: "spoe.conf.tmpl"})
	if err != nil {
		return nil, nil, err
	}
	paste, err := v.snippets()
	return files, paste, err
}

// view is what the templates see: o with its defaults and what follows from it.
type view struct {
	HAProxy
	Full         bool // a new install
	OnePool      bool // the filter sits in the pool's own backend
	InPlace      bool // the pools are the user's backends; RetrySent is for one of them
	Agent        string
	Feed         string
	FeedOnTCP    bool
	DatagramFeed string // the same for datagrams
	API          string
	Chroot       bool // the agent's socket is a path, which chroot would hide
	Limits
}

// view checks o and completes it.
func (o HAProxy) view(full bool) (*view, error) {
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.PrefillHeader == "" {
		o.PrefillHeader = DefaultPrefillHeader
	}
	if o.ServerTimeout == 0 {
		o.ServerTimeout = 600 * time.Second
	}
	if o.DefaultPool == "" && len(o.Pools) > 0 {
		o.DefaultPool = o.Pools[0].Name
	}
	if err := o.check(full); err != nil {
		return nil, err
	}
	v := &view{HAProxy: o, Full: full}
	v.OnePool = !full && len(o.Pools) == 1 && len(o.Pools[0].Replicas) > 0
	v.Agent, _ = address(o.AgentAddress)
	v.Feed, _ = address(o.FeedAddress)
	v.DatagramFeed, v.FeedOnTCP = v.Feed, true
	if path, ok := strings.CutPrefix(v.Feed, "unix@"); ok {
		v.DatagramFeed, v.FeedOnTCP = Datagrams(path), false
	}
	v.API, _ = address(o.RuntimeAPI)
	v.API = strings.TrimPrefix(v.API, "unix@")
	v.Chroot = strings.HasPrefix(v.Agent, "unix@")
	v.Limits = LimitsOf(o.Bufsize)
	return v, nil
}

// Datagrams is the path of the socket for datagrams beside a feed at path.
func Datagrams(path string) string { return path + ".datagrams" }

// safeWord is what may stand in a configuration line without quotes.
var safeWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,*\[\]-]+$`)

// safeName matches the names that HAProxy accepts for backends and servers.
var safeName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// check lists what is wrong with o, after its defaults were filled in.
func (o HAProxy) check(full bool) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := o.Version.Check(); err != nil {
		errs = append(errs, err)
	}
	if full && !safeWord.MatchString(o.Bind) {
		bad("bind %q: want an address such as *:8080", o.Bind)
	}
	if _, err := address(o.AgentAddress); err != nil {
		bad("agent address: %w", err)
	}
	if a, err := address(o.FeedAddress); err != nil {
		bad("feed address: %w", err)
	} else if strings.HasPrefix(a, "unix@") && !o.Version.ringsOverUnix() {
		bad("feed address %q: the ring of HAProxy %v never connects again to a unix socket that was closed, as by a restart of the agent; want host:port", o.FeedAddress, o.Version)
	}
	if err := CheckSPOEConf(o.SPOEConf); err != nil {
		errs = append(errs, err)
	}
	if full && o.RuntimeAPI != "" {
		if _, err := address(o.RuntimeAPI); err != nil {
			bad("runtime API address: %w", err)
		}
	}
	if full && o.User != "" && !safeName.MatchString(o.User) {
		bad("user %q: want an account's name", o.User)
	}
	if o.Bufsize < minBufsize || o.Bufsize > maxBufsize {
		bad("buffer size %d: want %d to %d bytes", o.Bufsize, minBufsize, maxBufsize)
	}
	if o.LargeBufsize != 0 {
		switch {
		case !o.Version.AtLeast(3, 4):
			bad("large buffers need HAProxy 3.4; this is %v", o.Version)
		case o.LargeBufsize <= o.Bufsize || o.LargeBufsize > maxBufsize:
			bad("large buffer size %d: want more than the buffer size %d, at most %d", o.LargeBufsize, o.Bufsize, maxBufsize)
		}
	}
	for name, d := range map[string]time.Duration{
		"processing timeout": o.ProcessingTimeout,
		"body timeout":       o.BodyTimeout,
		"server timeout":     o.ServerTimeout,
	} {
		if d < time.Millisecond || d > 24*time.Hour {
			bad("%s %v: want 1ms to 24h", name, d)
		}
	}
	if len(o.Pools) == 0 {
		bad("no pools")
	}
	errs = append(errs, checkPools(o)...)
	return errors.Join(errs...)
}

// checkPools lists what is wrong with the pools of o.
func checkPools(o HAProxy) []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	pools, models := map[string]bool{}, map[string]string{}
	for _, p := range o.Pools {
		switch {
		case !safeName.MatchString(p.Name):
			bad("pool %q: want 1 to %d letters, digits and -_.:", p.Name, maxName)
		case pools[p.Name]:
			bad("pool %s: named twice", p.Name)
		case p.Name == AgentBackend || p.Name == newFrontend:
			bad("pool %s: the name is taken by a section of ours", p.Name)
		}
		pools[p.Name] = true
		if p.HealthPath != "" && p.HealthPath != "none" && (p.HealthPath[0] != '/' || !safeWord.MatchString(p.HealthPath)) {
			bad("pool %s: health path %q: want a path such as /health, or none", p.Name, p.HealthPath)
		}
		for _, m := range p.Models {
			if m == "" || len(m) > 256 || strings.ContainsFunc(m, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				bad("pool %s: model %.60q: want 1 to 256 printable bytes", p.Name, m)
			} else if models[m] != "" && models[m] != p.Name {
				bad("pool %s: model %q belongs to pool %s already", p.Name, m, models[m])
			}
			models[m] = p.Name
		}
		replicas := map[string]bool{}
		for _, r := range p.Replicas {
			switch {
			case !safeName.MatchString(r.Name):
				bad("pool %s: replica %q: want 1 to %d letters, digits and -_.:", p.Name, r.Name, maxName)
			case replicas[r.Name]:
				bad("pool %s: replica %s: named twice", p.Name, r.Name)
			}
			replicas[r.Name] = true
			if h, port, err := net.SplitHostPort(r.Address); err != nil || h == "" || port == "" || !safeWord.MatchString(r.Address) {
				bad("pool %s: replica %s: address %q: want host:port", p.Name, r.Name, r.Address)
			}
			if r.Weight < 0 || r.Weight > 256 {
				bad("pool %s: replica %s: weight %d: want 0 to 256", p.Name, r.Name, r.Weight)
			}
			if r.MaxConn < 0 {
				bad("pool %s: replica %s: maxconn %d: want 0 or more", p.Name, r.Name, r.MaxConn)
			}
		}
	}
	if o.DefaultPool != "" && !pools[o.DefaultPool] {
		bad("default pool %q: no pool has that name", o.DefaultPool)
	}
	return errs
}

// address turns an address of our configuration into HAProxy's form.
func address(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if !strings.HasPrefix(path, "/") || !safeWord.MatchString(path) {
			return "", fmt.Errorf("%q: want unix:// and an absolute path without spaces", s)
		}
		return "unix@" + path, nil
	}
	hostport := strings.TrimPrefix(s, "tcp://")
	if host, port, err := net.SplitHostPort(hostport); err != nil || host == "" || port == "" || !safeWord.MatchString(hostport) {
		return "", fmt.Errorf("%q: want unix:///path, tcp://host:port or host:port", s)
	}
	return hostport, nil
}

// Named reports whether the replica's address is a host name, which HAProxy
// has to resolve before it can start.
func (r Replica) Named() bool {
	host, _, _ := net.SplitHostPort(r.Address)
	_, err := netip.ParseAddr(host)
	return err != nil
}

// Queue is the longest that a request of the pool waits in HAProxy's queues.
func (p Pool) Queue() time.Duration {
	if p.QueueTimeout == 0 {
		return time.Minute
	}
	return p.QueueTimeout
}

// Health is the path of the pool's health check, empty for none.
func (p Pool) Health() string {
	switch p.HealthPath {
	case "":
		return "/health"
	case "none":
		return ""
	}
	return p.HealthPath
}
