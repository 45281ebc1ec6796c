package main

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// built is the site, made once of the repository.
func built(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "site")
	if err := run("../..", out, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	attribute = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	names     = regexp.MustCompile(` id="([^"]*)"`)
	// remote is what a browser would load by itself from elsewhere.
	remote = regexp.MustCompile(`<(?:script|link|img|iframe|source)[^>]*(?:src|href)="(?:https?:)?//`)
)

// Whatever a page of the site links to is in the site, with the heading that it names;
// nothing is loaded from elsewhere; every page is in the index of the search.
func TestSite(t *testing.T) {
	out := built(t)
	pages := map[string]string{}
	err := filepath.WalkDir(out, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(out, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		pages[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := func(name string) map[string]bool {
		m := map[string]bool{}
		for _, id := range names.FindAllStringSubmatch(pages[name], -1) {
			m[id[1]] = true
		}
		return m
	}
	links, html := 0, 0
	for name, text := range pages {
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		html++
		if m := remote.FindString(text); m != "" {
			t.Errorf("%s loads from elsewhere: %s", name, m)
		}
		if !strings.Contains(text, "<h1") || !strings.Contains(text, `aria-current="page"`) {
			t.Errorf("%s has no heading, or is not in the navigation", name)
		}
		for _, m := range attribute.FindAllStringSubmatch(text, -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(to, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, ok := pages[target]; !ok {
				t.Errorf("%s: %s leads nowhere", name, to)
			} else if anchor != "" && !ids(target)[anchor] {
				t.Errorf("%s: %s names no heading", name, to)
			}
		}
	}
	if html < 60 || links < 60*60 {
		t.Errorf("%d pages, %d links", html, links)
	}
	for _, part := range sections[:len(sections)-1] {
		if !strings.Contains(pages["index.html"], "<summary>"+part.title+"</summary>") {
			t.Errorf("no part %q", part.title)
		}
	}
	list := strings.TrimSuffix(strings.TrimPrefix(pages["search-index.js"], "window.searchIndex="), ";\n")
	var entries []entry
	if err := json.Unmarshal([]byte(list), &entries); err != nil {
		t.Fatal(err)
	}
	indexed := map[string]bool{}
	for _, e := range entries {
		file, _, _ := strings.Cut(e.URL, "#")
		indexed[file] = true
	}
	for name := range pages {
		if strings.HasSuffix(name, ".html") && !indexed[name] {
			t.Errorf("%s cannot be found by a search", name)
		}
	}
	for name, want := range map[string]string{
		"reference/keys.html":      "<code>pools.NAME.replicas.NAME.address</code>",
		"reference/commands.html":  "<code>--log-format=text</code>",
		"reference/metrics.html":   "<code>pointsman_decisions_total</code>",
		"reference/variables.html": "<code>txn.pm.server</code>",
	} {
		if !strings.Contains(pages[name], want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
}

// A link that leads nowhere is an error that names the page.
func TestBrokenLinksAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"# A\n\n[b](gone.md)\n":          "gone.md leads nowhere",
		"# A\n\n[b](#gone)\n":            "no heading #gone",
		"# A\n\n## B c\n\n[b](#b-c)\n":   "",
		"# A\n\n![b](gone.png)\n":        "gone.png leads nowhere",
		"# A\n\n[b](a.md#one)\n\n## One": "",
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "a.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newSite(root, "")
		err := s.add("Part", "/a.md", "")
		if err == nil {
			err = s.render()
		}
		if err == nil {
			err = s.checkLinks()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
