package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// section is a part of the navigation. A page is named by its file, below docs unless
// it begins with a slash; a pattern stands for the pages that no other part names.
type section struct {
	title string
	pages []string
}

// sections are the navigation, in its order.
var sections = []section{
	{"Start in five minutes", []string{"/README.md", "start.md", "install.md"}},
	{"How it works", []string{"how-it-works.md", "apis.md", "policies/README.md", "admission.md", "budgets.md", "cluster.md", "engines.md", "prefill-decode.md", "haproxy.md", "nginx.md", "/ARCHITECTURE.md"}},
	{"Tutorials", []string{"tutorials/*.md", "shadow.md", "record.md", "simulate.md", "custom-policy.md"}},
	{"Reference", []string{"configuration.md", "reference/keys.md", "reference/commands.md", "metrics.md", "reference/metrics.md", "reference/variables.md", "tracing.md"}},
	{"Policies", []string{"policies/*.md"}},
	{"Operations", []string{"operations.md", "sizing.md", "autoscaling.md", "status-page.md", "check.md", "troubleshooting.md", "alerts.md", "failure.md", "/CHANGELOG.md"}},
	{"Security", []string{"/SECURITY.md"}},
	{"Comparison", []string{"comparison.md"}},
	{"Migration", []string{"migration/README.md", "migration/*.md"}},
	{"Measurements", []string{"/bench/*.md"}},
	{"Decisions", []string{"decisions/*.md"}},
	{"More", []string{"*.md", "*/*.md", "/CONTRIBUTING.md"}},
}

// page is a page of the site.
type page struct {
	source  string // the path of its Markdown in the repository
	target  string // the path of its HTML in the site
	section string
	title   string
	text    []byte // Markdown
	html    []byte
	ids     map[string]bool // of its headings
	links   []string        // as they stand in html
}

// site is all that is written.
type site struct {
	root     string
	version  string
	pages    []*page
	bySource map[string]*page
	files    map[string]string // copied as they are: path in the site by path in the repository
	entries  []entry
}

func newSite(root, version string) *site {
	return &site{root: root, version: version, bySource: map[string]*page{}, files: map[string]string{}}
}

// collect finds the pages. reference is the folder with the pages that the program has
// written, which stand for files below docs/reference.
func (s *site) collect(reference string) error {
	for _, part := range sections {
		for _, name := range part.pages {
			if err := s.add(part.title, name, reference); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) add(part, name, reference string) error {
	source := path.Join("docs", name)
	if rest, ok := strings.CutPrefix(name, "/"); ok {
		source = rest
	}
	file := func(source string) string {
		if rest, ok := strings.CutPrefix(source, "docs/reference/"); ok {
			return filepath.Join(reference, rest)
		}
		return filepath.Join(s.root, source)
	}
	list := []string{source}
	if strings.Contains(source, "*") {
		found, err := filepath.Glob(filepath.Join(s.root, source))
		if err != nil {
			return err
		}
		list = nil
		for _, f := range found {
			rel, err := filepath.Rel(s.root, f)
			if err != nil {
				return err
			}
			list = append(list, filepath.ToSlash(rel))
		}
		slices.Sort(list)
	}
	for _, source := range list {
		if s.bySource[source] != nil {
			continue
		}
		text, err := os.ReadFile(file(source))
		if os.IsNotExist(err) && source == "docs/tracing.md" {
			continue
		} else if err != nil {
			return err
		}
		p := &page{source: source, target: targetOf(source), section: part, text: text, ids: map[string]bool{}}
		first, _, _ := strings.Cut(string(text), "\n")
		title, ok := strings.CutPrefix(first, "# ")
		if !ok {
			return fmt.Errorf("%s: the first line is no heading", source)
		}
		p.title = strings.ReplaceAll(title, "`", "")
		s.pages = append(s.pages, p)
		s.bySource[source] = p
	}
	return nil
}

// targetOf is where the page of a source stands in the site.
func targetOf(source string) string {
	t := strings.ToLower(strings.TrimPrefix(source, "docs/"))
	if t == "readme.md" {
		return "index.html"
	}
	t = strings.TrimSuffix(t, ".md") + ".html"
	if dir, ok := strings.CutSuffix(t, "/readme.html"); ok {
		return dir + "/index.html"
	}
	return t
}
