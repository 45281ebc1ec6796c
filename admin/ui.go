package admin

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/admin/history"
	"pointsman/admin/page"
	"pointsman/decider"
)

// Sample takes a sample of the replicas' load for the status page, if one is due. The
// owner calls it about every second.
func (s *Server) Sample(now time.Time) { s.history.Add(now, s.pools) }

func (s *Server) pools() []decider.PoolStatus {
	list := []decider.PoolStatus{}
	for _, p := range s.decider.Pools() {
		list = append(list, p.Status())
	}
	return list
}

// index answers with the status page if the client asks for HTML, as browsers do, and
// otherwise with a list of all paths in plain text.
func (s *Server) index(ctx *fasthttp.RequestCtx) {
	q := page.ParseQuery(string(ctx.URI().QueryString()))
	if !q.Live && !bytes.Contains(ctx.Request.Header.Peek("Accept"), []byte("text/html")) {
		ctx.Response.Header.Set("Vary", "Accept")
		fmt.Fprintf(ctx, index, s.version)
		return
	}
	in := page.Input{
		Version: s.version, Now: time.Now(), Started: s.started, Draining: s.draining.Load(),
		Pools: s.pools(), Proxies: s.links(), History: &s.history, Records: s.decisions(q.Pool),
	}
	if s.Refusals != nil {
		in.Refusals = s.Refusals()
	}
	if s.RuntimeAPI != nil {
		in.RuntimeAPI = s.RuntimeAPI()
	}
	if s.Cluster != nil {
		c := s.Cluster.Status()
		in.Sections = []page.Section{peers(&c)}
	}
	var b bytes.Buffer
	s.html(ctx, &b, page.Write(&b, &in, q))
}

// html answers with a part or the whole of a page.
func (s *Server) html(ctx *fasthttp.RequestCtx, b *bytes.Buffer, err error) {
	if err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusInternalServerError)
		return
	}
	h := &ctx.Response.Header
	h.SetContentType("text/html; charset=utf-8")
	h.Set("Content-Security-Policy", page.Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	ctx.SetBody(b.Bytes())
}

// asset answers with a file of the page. Its address changes with its content.
func (s *Server) asset(ctx *fasthttp.RequestCtx, name string) {
	body, kind, ok := page.Asset(name)
	if !ok {
		ctx.Error("not found\n", fasthttp.StatusNotFound)
		return
	}
	ctx.SetContentType(kind)
	ctx.Response.Header.Set("Cache-Control", "public, max-age=31536000, immutable")
	ctx.SetBody(body)
}

// load answers with a picture of the load of a pool's replicas.
func (s *Server) load(ctx *fasthttp.RequestCtx) {
	p := s.decider.PoolNamed(ctx.QueryArgs().Peek("pool"))
	if p == nil {
		ctx.Error("no such pool\n", fasthttp.StatusNotFound)
		return
	}
	st := p.Status()
	var b bytes.Buffer
	if err := page.WriteLoad(&b, &st, s.history.Pool(time.Now(), &st)); err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("image/png")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBody(b.Bytes())
}

// decision answers with one of the last decisions and every term of its scores.
func (s *Server) decision(ctx *fasthttp.RequestCtx) {
	seq, err := strconv.ParseUint(string(ctx.QueryArgs().Peek("seq")), 10, 64)
	if err != nil {
		ctx.Error("want seq=NUMBER\n", fasthttp.StatusBadRequest)
		return
	}
	p := s.decider.PoolNamed(ctx.QueryArgs().Peek("pool"))
	if p == nil {
		ctx.Error("no such pool\n", fasthttp.StatusNotFound)
		return
	}
	var found *decider.Record
	records := p.Records()
	for i := range records {
		if records[i].Seq == seq {
			found = &records[i]
		}
	}
	if found == nil {
		ctx.SetStatusCode(fasthttp.StatusNotFound)
	}
	var b bytes.Buffer
	s.html(ctx, &b, page.WriteDecision(&b, found, ctx.QueryArgs().Has("live")))
}

// config answers with the configuration in force.
func (s *Server) config(ctx *fasthttp.RequestCtx) {
	if s.Config == nil {
		ctx.Error("not found\n", fasthttp.StatusNotFound)
		return
	}
	b, err := s.Config()
	if err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.SetBody(b)
}

// answerPage answers the requests of the status page, and reports whether path is one of
// those.
func (s *Server) answerPage(ctx *fasthttp.RequestCtx, path string) bool {
	switch path {
	case "/":
		s.index(ctx)
	case "/load.png":
		s.load(ctx)
	case "/decision":
		s.decision(ctx)
	case "/config":
		s.config(ctx)
	default:
		name, ok := strings.CutPrefix(path, "/assets/")
		if !ok {
			return false
		}
		s.asset(ctx, name)
	}
	return true
}

// ui is the part of Server for the status page.
type ui struct {
	started time.Time
	history history.History

	// Config, unless nil, returns the configuration in force as YAML, with secrets
	// masked. It is set before Serve.
	Config func() ([]byte, error)
}
