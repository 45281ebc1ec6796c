package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/page.html"))

// view is what the template shows of a page.
type view struct {
	Title, Section, Version string
	Root                    string // the way to the top of the site, as "../"
	Source                  string
	Index                   bool
	Body                    template.HTML
	Nav                     []navSection
	Contents                []navLink // the second headings of the page
	Before, After           *navLink
}

type navSection struct {
	Title string
	Open  bool
	Links []navLink
}

type navLink struct {
	Title, URL string
	Here       bool
}

func (s *site) write(out string) error {
	for i, p := range s.pages {
		v := s.view(i)
		var b bytes.Buffer
		if err := layout.Execute(&b, v); err != nil {
			return err
		}
		if err := put(filepath.Join(out, p.target), b.Bytes()); err != nil {
			return err
		}
	}
	for from, to := range s.files {
		data, err := os.ReadFile(filepath.Join(s.root, from))
		if err != nil {
			return err
		}
		if err := put(filepath.Join(out, to), data); err != nil {
			return err
		}
	}
	for _, name := range []string{"style.css", "search.js", "icon.svg"} {
		data, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(out, name), data); err != nil {
			return err
		}
	}
	// A script and no JSON: pages that are opened from a disk may load it as well.
	list, err := json.Marshal(s.entries)
	if err != nil {
		return err
	}
	return put(filepath.Join(out, "search-index.js"), append(append([]byte("window.searchIndex="), list...), ';', '\n'))
}

// view is page i with its navigation.
func (s *site) view(i int) view {
	p := s.pages[i]
	up := strings.Repeat("../", strings.Count(p.target, "/"))
	v := view{
		Title: p.title, Section: p.section, Version: s.version, Root: up, Source: p.source, Index: i == 0,
		Body: template.HTML(p.html), //nolint:gosec // of our own Markdown
	}
	for _, part := range sections {
		n := navSection{Title: part.title, Open: part.title == p.section}
		for _, q := range s.pages {
			if q.section == part.title {
				title := q.title
				if q.target == "index.html" {
					title = "Overview"
				}
				n.Links = append(n.Links, navLink{title, up + q.target, q == p})
			}
		}
		if len(n.Links) > 0 {
			v.Nav = append(v.Nav, n)
		}
	}
	for _, e := range s.entries {
		if name, anchor, ok := strings.Cut(e.URL, "#"); ok && name == p.target {
			v.Contents = append(v.Contents, navLink{Title: e.Heading, URL: "#" + anchor})
		}
	}
	if len(v.Contents) < 3 {
		v.Contents = nil
	}
	if i > 0 {
		v.Before = &navLink{Title: s.pages[i-1].title, URL: up + s.pages[i-1].target}
	}
	if i < len(s.pages)-1 {
		v.After = &navLink{Title: s.pages[i+1].title, URL: up + s.pages[i+1].target}
	}
	return v
}

func put(name string, data []byte) error {
	if err := os.MkdirAll(path.Dir(filepath.ToSlash(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}
