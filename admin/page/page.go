// Package page renders the status page: HTML that is whole without a script, which a
// small script keeps up to date in a browser. It has no prompt text, session id or
// key to show.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"time"

	"pointsman/admin/history"
	"pointsman/decider"
	"pointsman/link"
)

//go:embed assets
var files embed.FS

// Policy is the Content-Security-Policy of all pages: only resources of this server, no
// inline script or style, and no other page around it.
const Policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Input is what the page shows.
type Input struct {
	Version  string
	Now      time.Time
	Started  time.Time
	Draining bool
	Pools    []decider.PoolStatus
	Proxies  []link.Status
	Refusals []string // of HAProxy's runtime API, in its own words
	// RuntimeAPI is why it does not answer, "" if it does.
	RuntimeAPI string
	Records    []decider.Record
	Sections   []Section
	History    *history.History
}

// Section is a table that another part of the agent adds: the peers of a cluster.
type Section struct {
	ID       string // of its element
	Title    string
	Summary  string
	Problems []string
	Columns  []Cell
	Rows     [][]Cell // the first cell names the row
}

// Cell is one of a Section's table.
type Cell struct {
	Text   string
	Number bool   // stands at the right
	State  string // "up", "draining", "down" or "unknown": how it is coloured; empty for none
}

// asset is a file that the page loads.
type asset struct {
	kind string
	body []byte
	hash string
}

var assets = func() map[string]asset {
	m := map[string]asset{}
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		b, err := files.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(b)
		m[name] = asset{kind, b, hex.EncodeToString(sum[:6])}
	}
	return m
}()

// Asset returns a file that the page loads, and its content type.
func Asset(name string) (body []byte, kind string, ok bool) {
	a, ok := assets[name]
	return a.body, a.kind, ok
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": func(name string) string { return "/assets/" + name + "?v=" + assets[name].hash },
	"count": count[int], "seconds": seconds, "age": age, "percent": percent, "figure": figure,
}).ParseFS(files, "assets/*.html"))

// Write writes the page that q selects, or with q.Live only its changing part.
func Write(w io.Writer, in *Input, q *Query) error {
	name := "page"
	if q.Live {
		name = "live"
	}
	return write(w, name, newView(in, q))
}

// WriteDecision writes a past decision with every term, or a message that it is no longer
// known.
func WriteDecision(w io.Writer, r *decider.Record, live bool) error {
	var v *decisionView
	if r != nil {
		v = newDecisionView(r)
	}
	name := "decision-page"
	if live {
		name = "decision"
	}
	return write(w, name, v)
}

// WriteExplanation writes where a request would go, as a part of the page.
func WriteExplanation(w io.Writer, x *decider.Explanation) error {
	return write(w, "explanation", newExplanationView(x))
}

// WriteRefusal writes why a request is refused, as a part of the page.
func WriteRefusal(w io.Writer, status int, reason string) error {
	return write(w, "refusal", map[string]any{"Status": status, "Reason": reason})
}

// write renders into memory first: a page is sent whole or not at all.
func write(w io.Writer, name string, data any) error {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("the page cannot be rendered: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}
