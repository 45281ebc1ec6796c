package main

import (
	"strings"

	"github.com/yuin/goldmark/ast"
)

// entry is what a search finds: a part of a page below a heading.
type entry struct {
	Page    string `json:"p"` // its title
	Heading string `json:"h"` // empty at the beginning of the page
	URL     string `json:"u"`
	Text    string `json:"t"`
}

// index makes the entries of a page. The text of decisions and of measurements is
// searched by its headings and first paragraphs alone.
func (s *site) index(p *page, doc ast.Node) {
	at := entry{Page: p.title, URL: p.target}
	var text strings.Builder
	limit := 1 << 20
	if p.section == "Measurements" || p.section == "Decisions" || strings.HasSuffix(p.source, "CHANGELOG.md") {
		limit = 300
	}
	flush := func() {
		at.Text = strings.Join(strings.Fields(text.String()), " ")
		if len(at.Text) > limit {
			at.Text = strings.ToValidUTF8(at.Text[:limit], "")
		}
		if at.Text != "" || at.Heading != "" {
			s.entries = append(s.entries, at)
		}
		text.Reset()
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			text.Write(words(n, p.text))
			text.WriteByte(' ')
			continue
		}
		if h.Level == 1 {
			continue
		}
		flush()
		id, _ := h.AttributeString("id")
		at.Heading, at.URL = string(words(h, p.text)), p.target+"#"+string(id.([]byte))
	}
	flush()
}
