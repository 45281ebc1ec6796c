package templates

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// newFrontend is the frontend of a new install.
const newFrontend = "pointsman"

// lineLen bounds a feed line in bytes. The longest before 3.2 also holds
// HAProxy's usual format with a URI of up to 1024 bytes.
const lineLen = 4096

// httpLog is what "option httplog" stands for.
const httpLog = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r"

//go:embed *.tmpl
var texts embed.FS

var parsed = template.Must(template.New("").Funcs(template.FuncMap{
	"agent":       func() string { return AgentBackend },
	"ring":        func() string { return Ring },
	"feedEnd":     func() string { return FeedEnd },
	"marker":      func() string { return FeedMarker },
	"newFrontend": func() string { return newFrontend },
	"lineLen":     func() int { return lineLen },
	"feed":        feedFormat,
	"httplog":     func() string { return httpLog },
	"refusal":     refusal,
	"messages":    messagesRefusal,
	"dur":         duration,
	"word":        word,

	"modelsMessage": func() string { return ModelsMessage },
	"modelsPath":    func() string { return ModelsPath },

	"tag":           func() string { return NginxTag },
	"errorTag":      func() string { return NginxErrorTag },
	"agentUpstream": func() string { return NginxAgent },
	"ask":           func() string { return NginxAsk },
	"target":        func() string { return NginxTarget },
	"last":          func() string { return NginxLast },
	"lastUpstream":  func() string { return lastUpstream },
	"fallback":      func() string { return NginxFallback },
	"headersGlob":   func() string { return NginxHeaders },
	"broken":        func() string { return NginxBroken },
}).ParseFS(texts, "*.tmpl"))

// ModelsMessage is the SPOE message that asks for the list of models, which is to be had
// at ModelsPath.
const (
	ModelsMessage = "pm-models"
	ModelsPath    = "/v1/models"
)

// feedFormat is HAProxy's log format of a feed line: "first" at the first byte or at the
// headers, "close" at the end, and "end" for the same as a datagram, which needs no more
// than the outcome. The fields come first in their line, because the text after them may
// contain a client's own bytes and be cut at the end, and FeedEnd ends them.
func feedFormat(line string) string {
	const (
		server  = " srv=%s st=%ST"
		first   = " tf=%[var(txn.pm.t_first)]"
		outcome = server + " ts=%ts B=%B rc=%rc t0=%[var(txn.pm.t0)]" + first
		asked   = " err=%[var(txn.pm.error)] dec=%[var(txn.pm.server)]"
	)
	event, fields := line, ""
	switch line {
	case "first":
		fields = " pool=%b" + server + first
	case "close":
		// Frontend, method and path are for requests that the agent was not asked about. The
		// line has only the end of the path.
		fields = " pool=%b" + outcome + asked + " fe=%f me=%[method] pa=%[capture.req.uri,word(-1,/),bytes(0," + strconv.Itoa(len(FeedChat)) + ")]"
	case "end":
		event, fields = "close", outcome
	}
	return FeedMarker + " ev=" + event + " rid=%[var(txn.pm.rid)]" + fields + " " + FeedEnd
}

// messagesRefusal is refusal in Anthropic's form, for its Messages API.
func messagesRefusal(status int) string {
	message, kind := "No replica is available.", "overloaded_error"
	switch status {
	case 400:
		message, kind = "The request cannot be read.", "invalid_request_error"
	case 404:
		message, kind = "The model does not exist.", "not_found_error"
	case 429:
		message, kind = "Too many requests.", "rate_limit_error"
	}
	return fmt.Sprintf(`{"type":"error","error":{"type":"%s","message":"%%[var(txn.pm.reason,%q)]"}}`, kind, message)
}

// refusal is the body of a refused request in OpenAI's form. The agent's reason
// is safe inside a JSON string; without one there is a default message.
func refusal(status int) string {
	message, kind, param, code := "", "", "null", ""
	switch status {
	case 400:
		message, kind, code = "The request cannot be read.", "invalid_request_error", "bad_request"
	case 404:
		message, kind, param, code = "The model does not exist.", "invalid_request_error", `"model"`, "model_not_found"
	case 429:
		message, kind, code = "Too many requests.", "rate_limit_error", "rate_limit_exceeded"
	default:
		message, kind, code = "No replica is available.", "server_error", "service_unavailable"
	}
	return fmt.Sprintf(`{"error":{"message":"%%[var(txn.pm.reason,%q)]","type":"%s","param":%s,"code":"%s"}}`,
		message, kind, param, code)
}

// duration writes d as HAProxy reads it.
func duration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// word quotes s for a configuration line.
func word(s string) string {
	if safeWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// render executes the named templates in the order of the file names.
func render(v *view, names map[string]string) ([]File, error) {
	var files []File
	for name, tmpl := range names {
		text, err := execute(tmpl, v)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, text})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// execute runs one template and ends its text in one newline.
func execute(tmpl string, data any) (string, error) {
	var b bytes.Buffer
	if err := parsed.ExecuteTemplate(&b, tmpl, data); err != nil {
		return "", err
	}
	return strings.Trim(b.String(), "\n") + "\n", nil
}

// poolView is the view together with one of its pools.
type poolView struct {
	*view
	Pool Pool
}

// For narrows the view to a pool.
func (v *view) For(p Pool) poolView { return poolView{v, p} }

// Reuses reports whether the pool's connections to replicas are kept. A replica that
// refuses has to be down at once: other retries go to the same replica.
func (v poolView) Reuses() bool {
	switch n := len(v.Pool.Replicas); {
	case !v.RetrySent || v.InPlace:
		return v.RetrySent
	case n == 0: // the servers of a backend of the user's need not all be the agent's
		return v.Full && v.Pool.Discovered
	default:
		return n == 1 || v.Pool.Health() != ""
	}
}

// Keeps reports whether a pool's connections to replicas are kept.
func (v *view) Keeps() bool {
	return slices.ContainsFunc(v.Pools, func(p Pool) bool { return v.For(p).Reuses() })
}

// reuse names the connections that a try of a request may use. The first try gets its
// pm.conn and leaves the next one another name, which no other request has. A closed
// connection among the kept ones thus costs one try.
const reuse = "var(txn.pm.conn),add(txn.pm.own),set-var(txn.pm.conn),sub(txn.pm.own)"

// ReuseBy is the argument of a server that limits the reuse of connections to those of
// the same name. Before 3.0 only that of TLS names does, and TLS is not used here.
func (v Version) ReuseBy() string {
	if v.AtLeast(3, 0) {
		return "pool-conn-name " + reuse
	}
	return "sni " + reuse
}

// DefaultServer are the settings of servers whose lines are not ours. These inherit
// pool-conn-name from some releases only; where they do not, sni stands for it.
func (v Version) DefaultServer() string {
	if v.AtLeast(3, 0) {
		return "sni " + reuse + " pool-conn-name " + reuse
	}
	return "sni " + reuse
}

// AddServer are the arguments of a server that the agent adds at run time: those of the
// servers in a rendered configuration, but for tcp-ut, which no HAProxy takes there. 2.6
// keeps no connection of such servers without pool-max-conn and pool-purge-delay.
func (v Version) AddServer() string {
	return "check inter 2s fall 3 rise 2 observe layer4 error-limit 1 on-error mark-down downinter 500ms pool-max-conn -1 pool-purge-delay 5s " + v.ReuseBy()
}

// LogProfiles reports whether HAProxy can give each log its own format.
func (v *view) LogProfiles() bool { return v.Version.AtLeast(3, 2) }

// RingsOverUnix reports whether the feed may go to a unix socket.
func (v *view) RingsOverUnix() bool { return v.Version.ringsOverUnix() }

// Dir is the folder that holds our files.
func (v *view) Dir() string { return path.Dir(v.SPOEConf) }

// Asked is the condition of the requests that the agent is asked about.
func (v *view) Asked() string { return strings.TrimSpace("METH_POST " + v.Ours()) }

// Ours is the condition of the requests that go to pools, empty where all do.
func (v *view) Ours() string {
	if v.Full || v.OnePool {
		return ""
	}
	return "pm_llm"
}

// MaxConn is the connection limit of the rendered HAProxy: what its replicas serve
// at a time, the same again for connections that clients keep between requests, and
// what may wait. HAProxy does not start where the limit of descriptors is below twice
// as much, so it is no more than a small installation's where the replicas are unknown.
func (v *view) MaxConn() int {
	places := 0
	for _, p := range v.Pools {
		n := 0
		for _, r := range p.Replicas {
			if r.MaxConn == 0 {
				r.MaxConn = replicaPlaces
			}
			n += r.MaxConn
		}
		places += n
	}
	return max(minMaxConn, 2*places) + v.Waiting
}

const (
	replicaPlaces = 512  // requests that a replica without a limit serves at a time: twice vLLM's 256
	minMaxConn    = 4000 // also of a small installation
)

// HotSize is how many bytes of buffers a thread keeps, 0 where HAProxy does not let one
// choose.
func (v *view) HotSize() int {
	if !v.Version.AtLeast(2, 8) {
		return 0
	}
	return max(defaultHotSize, min(hotBuffers*v.Bufsize, mostHotSize))
}

// ReturnsBuffers reports whether HAProxy gives most buffers back to the system after each
// use, unless the C library keeps them. 2.6 does, 3.0 does not.
func (v *view) ReturnsBuffers() bool { return !v.Version.AtLeast(3, 0) }

const (
	defaultHotSize = 512 << 10 // HAProxy's own
	hotBuffers     = 64        // of 32 requests that a thread serves at a time
	mostHotSize    = 16 << 20
)

// Half is how much of a body goes as its head, and as its tail, with large
// buffers.
func (v *view) Half() int { return v.MaxBody / 2 }

// Args are the arguments of the SPOE message.
func (v *view) Args() string {
	args := []string{"rid=var(txn.pm.rid)", "proc=var(proc.pm_process)"}
	if v.OnePool {
		args = append(args, "pool=var(txn.pm.pool)")
	}
	args = append(args,
		fmt.Sprintf("path=path,bytes(0,%d)", v.MaxPath),
		fmt.Sprintf("hdrs=req.hdrs,bytes(0,%d)", v.MaxHeaders),
		"blen=req.body_len",
		"bsize=req.body_size")
	if v.LargeBufsize == 0 {
		args = append(args, fmt.Sprintf("body=req.body,bytes(0,%d)", v.MaxBody))
	} else {
		args = append(args,
			fmt.Sprintf("head=req.body,bytes(0,%d)", v.Half()),
			"tail=req.body,bytes(txn.pm.off)",
			"model=req.body,json_query('$.model'),bytes(0,256)")
	}
	return strings.Join(args, " ")
}

// route leads one model to its pool.
type route struct{ Pool, Model string }

// ByModel are the routes that hold without a decision; the default pool needs
// none.
func (v *view) ByModel() []route {
	var out []route
	for _, p := range v.Pools {
		if p.Name == v.DefaultPool {
			continue
		}
		for _, m := range p.Models {
			out = append(out, route{p.Name, m})
		}
	}
	return out
}

// snippets are the lines to paste, in the order of the user's file.
func (v *view) snippets() ([]Snippet, error) {
	var out []Snippet
	var firstErr error
	add := func(where, tmpl string, optional bool, data any) {
		text, err := execute(tmpl, data)
		if err != nil && firstErr == nil {
			firstErr = err
		}
		out = append(out, Snippet{Where: where, Text: text, Optional: optional})
	}
	add("global", "global", false, v)
	if !v.Version.AtLeast(3, 4) {
		add("defaults", "defaults", false, v)
	}
	// The optional lines come first, because a use_backend must follow the rules.
	if v.LogProfiles() {
		add("frontend", "live", true, v)
	}
	add("frontend", "frontend", false, v)
	for _, p := range v.Pools {
		if len(p.Replicas) == 0 {
			add("backend "+p.Name, "backend", false, v.For(p))
		}
	}
	return out, firstErr
}
