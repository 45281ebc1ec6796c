package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// render turns each page into HTML and makes the entries to search.
func (s *site) render() error {
	for _, p := range s.pages {
		if err := s.renderPage(p); err != nil {
			return fmt.Errorf("%s: %w", p.source, err)
		}
	}
	return nil
}

func (s *site) renderPage(p *page) error {
	ctx := parser.NewContext(parser.WithIDs(&headingIDs{of: p.ids}))
	doc := markdown.Parser().Parse(text.NewReader(p.text), parser.WithContext(ctx))
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id := ctx.IDs().Generate(words(n, p.text), n.Kind())
			n.SetAttributeString("id", id)
		case *ast.Link:
			to, err := s.link(p, string(n.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(to)
			p.links = append(p.links, to)
		case *ast.Image:
			to, err := s.link(p, string(n.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(to)
			p.links = append(p.links, to)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.text, doc); err != nil {
		return err
	}
	// Wide tables scroll by themselves, and by the keyboard.
	for i, part := range bytes.Split(b.Bytes(), []byte("<table>")) {
		if i > 0 {
			p.html = fmt.Appendf(p.html, `<div class="wide" tabindex="0" role="region" aria-label="Table %d"><table>`, i)
		}
		p.html = append(p.html, part...)
	}
	p.html = bytes.ReplaceAll(p.html, []byte("</table>"), []byte("</table></div>"))
	p.html = bytes.ReplaceAll(p.html, []byte("<pre>"), []byte(`<pre tabindex="0">`))
	s.index(p, doc)
	return nil
}

// link is the destination of a link on p, in the site. Files that are no pages are
// taken into the site; a folder without a page of its own stands for its files.
func (s *site) link(p *page, to string) (string, error) {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || strings.HasPrefix(to, "#") {
		return to, nil
	}
	name, anchor, _ := strings.Cut(to, "#")
	source := path.Join(path.Dir(p.source), name)
	info, err := os.Stat(filepath.Join(s.root, source))
	target := ""
	switch q := s.bySource[source]; {
	case q != nil:
		target = q.target
	case err != nil:
		return "", fmt.Errorf("%s leads nowhere", to)
	case info.IsDir():
		if q := s.bySource[source+"/README.md"]; q != nil {
			target = q.target
		} else if q := s.firstBelow(source); q != nil {
			target = q.target
		} else {
			return "", fmt.Errorf("%s is a folder without a page", to)
		}
	default:
		target = "files/" + source
		if strings.HasPrefix(source, "docs/images/") {
			target = strings.TrimPrefix(source, "docs/")
		}
		s.files[source] = target
	}
	rel, err := filepath.Rel(path.Dir(p.target), target)
	if err != nil {
		return "", err
	}
	if anchor != "" {
		rel += "#" + anchor
	}
	return filepath.ToSlash(rel), nil
}

// firstBelow is the first page whose source is in a folder.
func (s *site) firstBelow(folder string) *page {
	for _, p := range s.pages {
		if strings.HasPrefix(p.source, folder+"/") {
			return p
		}
	}
	return nil
}

// headingIDs makes the names of headings as GitHub does, so that links in the Markdown
// hold there and here.
type headingIDs struct{ of map[string]bool }

var notInID = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate implements parser.IDs.
func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(string(value)), ""), " ", "-")
	for n, base := 1, id; h.of[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	h.of[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (h *headingIDs) Put(value []byte) { h.of[string(value)] = true }

// words is the text of a node without its marks.
func words(n ast.Node, source []byte) []byte {
	var b bytes.Buffer
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return bytes.TrimSpace(b.Bytes())
}

// checkLinks follows each link within the site.
func (s *site) checkLinks() error {
	targets := map[string]*page{}
	for _, p := range s.pages {
		targets[p.target] = p
	}
	files := map[string]bool{}
	for _, t := range s.files {
		files[t] = true
	}
	var faults []string
	for _, p := range s.pages {
		for _, l := range p.links {
			if strings.Contains(l, "://") || strings.HasPrefix(l, "mailto:") {
				continue
			}
			name, anchor, _ := strings.Cut(l, "#")
			q := p
			if name != "" {
				to := path.Join(path.Dir(p.target), name)
				if q = targets[to]; q == nil && !files[to] {
					faults = append(faults, fmt.Sprintf("%s: %s is not in the site", p.source, l))
				}
			}
			if q != nil && anchor != "" && !q.ids[anchor] {
				faults = append(faults, fmt.Sprintf("%s: %s has no heading #%s", p.source, q.source, anchor))
			}
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%d links lead nowhere:\n%s", len(faults), strings.Join(faults, "\n"))
	}
	return nil
}
