package templates

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Nginx says what to render for one nginx. Zero numbers and durations take the
// defaults named at each field; empty strings are refused unless the field says
// otherwise.
type Nginx struct {
	// Bind is the address of the new server: ":8080", "8080" or host:port.
	// Attaching does not use it.
	Bind string

	// AgentAddress is where the agent answers nginx: "unix:///run/x.sock",
	// "tcp://127.0.0.1:9902" or "127.0.0.1:9902".
	AgentAddress string

	// FeedAddress is where the agent reads nginx's log lines, over UDP:
	// host:port, with or without "tcp://" before it, where HAProxy's come.
	FeedAddress string

	// RankHeader names the header that tells an engine which of its ranks is to serve a
	// request; "" = no engine has ranks.
	RankHeader string

	// PrefillHeader names the header in which a sidecar finds the replica that computes the
	// prompt. Nothing that a client sends under this name is passed on. Prefills says
	// whether there are such replicas, so that it is set.
	PrefillHeader string
	Prefills      bool

	// Dir is the folder in which nginx will find the attached files.
	Dir string

	// Folder is where the new nginx keeps its pid, its logs and its temporary
	// files; empty leaves them in nginx's own places. Attaching does not use it.
	Folder string

	// BodyBuffer is how much of a body is held in memory, in bytes; more goes
	// to a temporary file, and the agent and the replica get all of it in any
	// case.
	BodyBuffer int

	// ProcessingTimeout is how long a request waits for a decision before it
	// goes on without one.
	ProcessingTimeout time.Duration

	// ServerTimeout is how long a replica may be silent. Default 600 s.
	ServerTimeout time.Duration

	// RetrySent lets nginx send a request to a second replica although the
	// first one may have begun it. The agent has to allow it too.
	RetrySent bool

	// Budgets tells clients how many tokens they have left, in x-ratelimit headers.
	Budgets bool

	// Pools become upstreams. A replica whose name is an address (it holds a colon) is
	// not known beforehand: it is in its pool's upstream only.
	Pools []Pool

	// DefaultPool takes every request while the agent is away: nginx does not
	// see which model is asked for. The first pool by default.
	DefaultPool string
}

// The files that are rendered for nginx.
const (
	NginxFile       = "nginx.conf"        // a new install's configuration
	NginxHTTPFile   = "nginx-http.conf"   // included at http level
	NginxServerFile = "nginx-server.conf" // included in the user's server

	// NginxHeaders are the files in which users keep what their replicas, or the
	// answers, shall get besides: proxy_set_header, add_header. There may be none.
	NginxHeaders = "nginx-headers*.conf"

	// NginxAgent is the upstream that leads to the agent.
	NginxAgent = "pointsman_agent"

	// NginxTag and NginxErrorTag are the syslog tags of the feed's lines and of
	// the error log's, which hold what clients wrote.
	NginxTag      = "pm"
	NginxErrorTag = "pm_error"
)

// Named locations of the rendered configuration, which X-Accel-Redirect names.
const (
	NginxAsk      = "@pm_ask"      // the question, when attached
	NginxTarget   = "@pm_target"   // the first try
	NginxLast     = "@pm_last"     // the second
	NginxFallback = "@pm_fallback" // balanced by nginx alone
)

// NginxBroken is the answer to a request that a replica may have begun before
// it failed, in OpenAI's form.
const NginxBroken = `{"error":{"message":"The replica failed after it was sent the request.","type":"server_error","param":null,"code":"replica_failed"}}`

// NginxUpstream is the name of the upstream of a replica, or with replica ""
// that of the pool as a whole. '~' is in no name, so that no two are the same.
func NginxUpstream(pool, replica string) string {
	if replica == "" {
		return "pm~" + pool
	}
	return "pm~" + pool + "~" + replica
}

// RenderNginx renders the whole configuration of a new nginx: NginxFile. The
// error lists everything that is wrong with o.
func RenderNginx(o Nginx) ([]File, error) {
	v, err := o.view(true)
	if err != nil {
		return nil, err
	}
	text, err := execute("nginx.conf.tmpl", v)
	return []File{{NginxFile, text}}, err
}

// AttachNginx renders what an nginx that exists needs: two files to include,
// and the lines to paste, in the order of the user's file. The error lists
// everything that is wrong with o.
func AttachNginx(o Nginx) ([]File, []Snippet, error) {
	v, err := o.view(false)
	if err != nil {
		return nil, nil, err
	}
	var files []File
	for _, f := range []struct{ name, tmpl string }{
		{NginxHTTPFile, "nginx-http.tmpl"}, {NginxServerFile, "nginx-server.tmpl"},
	} {
		text, err := execute(f.tmpl, v)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, File{f.name, text})
	}
	var paste []Snippet
	for _, where := range []string{"http", "server", "location"} {
		text, err := execute("nginx-paste-"+where, v)
		if err != nil {
			return nil, nil, err
		}
		paste = append(paste, Snippet{Where: where, Text: text})
	}
	paste = append(paste, Snippet{Where: "http", Text: v.errorLog(), Optional: true})
	return files, paste, nil
}

// nginxView is what the templates see.
type nginxView struct {
	Nginx
	Full   bool
	Listen string
	Agent  string // in nginx's form
	Feed   string
	// AgentPattern finds the agent among the addresses that a request tried.
	AgentPattern string
	// Set is the variable that ends the names of the locations which the maps
	// lead to; empty if there is one set of them.
	Set string
}

// AdmissionHeaders reports whether the responses of any pool carry the band.
func (v *nginxView) AdmissionHeaders() bool {
	return slices.ContainsFunc(v.Pools, func(p Pool) bool { return p.AdmissionHeaders })
}

// view checks o and completes it.
func (o Nginx) view(full bool) (*nginxView, error) {
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
	v := &nginxView{Nginx: o, Full: full, Listen: strings.TrimPrefix(o.Bind, ":"), Feed: strings.TrimPrefix(o.FeedAddress, "tcp://")}
	v.Agent, _ = address(o.AgentAddress)
	v.Agent = strings.Replace(v.Agent, "unix@", "unix:", 1)
	v.AgentPattern = regexp.QuoteMeta(v.Agent) + "|" + NginxAgent
	return v, nil
}

// check lists what is wrong with o, after its defaults were filled in.
func (o Nginx) check(full bool) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if full && !nginxWord.MatchString(strings.TrimPrefix(o.Bind, ":")) {
		bad("bind %q: want an address such as :8080", o.Bind)
	}
	if a, err := address(o.AgentAddress); err != nil {
		bad("agent address: %w", err)
	} else if !nginxWord.MatchString(a) {
		bad("agent address %q: want none of the characters that mean something to nginx", a)
	}
	if a, err := address(o.FeedAddress); err != nil || strings.HasPrefix(a, "unix@") || !nginxWord.MatchString(a) {
		bad("feed address %q: want host:port, since nginx sends its lines over UDP", o.FeedAddress)
	}
	if !full {
		if err := CheckNginxDir(o.Dir); err != nil {
			errs = append(errs, err)
		}
	}
	if full && o.Folder != "" && (!path.IsAbs(o.Folder) || !nginxWord.MatchString(o.Folder)) {
		bad("folder %q: want an absolute path without spaces", o.Folder)
	}
	if o.BodyBuffer < 16<<10 || o.BodyBuffer > maxBufsize {
		bad("body buffer %d: want %d to %d bytes", o.BodyBuffer, 16<<10, maxBufsize)
	}
	for name, d := range map[string]time.Duration{"processing timeout": o.ProcessingTimeout, "server timeout": o.ServerTimeout} {
		if d < time.Millisecond || d > 24*time.Hour {
			bad("%s %v: want 1ms to 24h", name, d)
		}
	}
	if len(o.Pools) == 0 {
		bad("no pools")
	}
	errs = append(errs, checkPools(HAProxy{Pools: o.Pools, DefaultPool: o.DefaultPool})...)
	if full && len(o.Pools) > 0 && o.own() == "" {
		bad("pool %s: no replicas that nginx could balance over without a decision", o.DefaultPool)
	}
	// nginx compares the names of upstreams without case.
	seen := map[string]string{}
	for _, p := range o.Pools {
		if strings.Contains(p.Name, ":") {
			bad("pool %s: nginx takes what follows a colon for a port; want a name without one", p.Name)
		}
		for _, name := range append([]string{""}, p.upstreamNames()...) {
			u := NginxUpstream(p.Name, name)
			if other, ok := seen[strings.ToLower(u)]; ok && other != u {
				bad("%s and %s: nginx does not tell upper from lower case; want other names", u, other)
			}
			seen[strings.ToLower(u)] = u
		}
	}
	return errors.Join(errs...)
}

// nginxWord is what may stand in a line of nginx's without quotes.
var nginxWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,*\[\]-]+$`)

// upstreamNames are the replicas that have an upstream of their own.
func (p Pool) upstreamNames() (names []string) {
	for _, r := range p.Replicas {
		if !strings.Contains(r.Name, ":") {
			names = append(names, r.Name)
		}
	}
	return names
}

// backups is how many others follow a replica in its upstream of second tries.
const backups = 3

// lastUpstream ends the name of that upstream, after that of the replica's own.
const lastUpstream = "~last"

// nginxUpstream is one upstream as the template writes it.
type nginxUpstream struct {
	Name    string
	Servers []nginxServer
	Pool    bool // of the pool as a whole
	Last    bool // of a second try
}

// Zone is the size of the upstream's shared memory in KB. A server needs about 1
// KB of it: its own structure, its address and its name.
func (u nginxUpstream) Zone() int { return 128 + 2*len(u.Servers) }

type nginxServer struct {
	Address string
	Weight  int
	Backup  bool
}

// Upstreams are those of all pools: one for the pool as a whole, and two for each
// replica. The first tries go to the one that keeps connections, the second ones to the
// other, in which the next replicas of the list follow.
func (v *nginxView) Upstreams() (out []nginxUpstream) {
	for _, p := range v.Pools {
		if len(p.Replicas) == 0 {
			continue
		}
		all := nginxUpstream{Name: NginxUpstream(p.Name, ""), Pool: true}
		for _, r := range p.Replicas {
			all.Servers = append(all.Servers, nginxServer{Address: r.Address, Weight: r.Weight})
		}
		out = append(out, all)
		for i, r := range p.Replicas {
			if strings.Contains(r.Name, ":") {
				continue
			}
			own := nginxUpstream{Name: NginxUpstream(p.Name, r.Name), Servers: []nginxServer{{Address: r.Address}}}
			last := nginxUpstream{Name: own.Name + lastUpstream, Servers: slices.Clone(own.Servers), Last: true}
			for k := 1; k <= min(backups, len(p.Replicas)-1); k++ {
				last.Servers = append(last.Servers, nginxServer{Address: p.Replicas[(i+k)%len(p.Replicas)].Address, Backup: true})
			}
			out = append(out, own, last)
		}
	}
	return out
}

// Own is what the requests go to that have no decision. A pool whose replicas
// are not known here has no upstream, and the user's own has to stand for it.
func (v *nginxView) Own() string { return v.own() }

func (o Nginx) own() string {
	for _, p := range o.Pools {
		if p.Name == o.DefaultPool && len(p.Replicas) > 0 {
			return NginxUpstream(p.Name, "")
		}
	}
	return ""
}

// In executes the template of that name, each line indented by n spaces.
func (v *nginxView) In(n int, name string) (string, error) {
	text, err := execute(name, v)
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString(strings.Repeat(" ", n))
		}
		b.WriteString(line)
	}
	return b.String(), err
}

// errorLog is the line that reports broken answers to the agent.
func (v *nginxView) errorLog() string {
	text, err := execute("nginx-errors", v)
	if err != nil {
		panic(err) // it has no data to fail on
	}
	return text
}
