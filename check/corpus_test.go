package check

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pointsman/advice"
	attachhaproxy "pointsman/attach/haproxy"
	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/resolve"
	"pointsman/templates"
	"pointsman/test/inject"
)

// resolved reads a configuration of pointsman for a version of HAProxy.
func resolved(version string) func(name string, text []byte) (*resolve.Config, error) {
	return func(name string, text []byte) (*resolve.Config, error) {
		o := resolve.Options{HAProxyVersion: version, Policies: policy.Table{policy.Plain("least_work", func() decider.Policy { return policy.LeastWork{} })}}
		c, err := config.Parse(name, text, func(string) string { return "" }, o.Checks())
		if err != nil {
			return nil, err
		}
		return resolve.Resolve(c, o)
	}
}

// reports is what check finds, without any proxy at hand.
func reports(t *testing.T, r *resolve.Config, o Options) []advice.Finding {
	t.Helper()
	t.Setenv("PATH", "/nowhere")
	o.JSON, o.Rendered = true, true
	var b bytes.Buffer
	_ = Run(&b, r, o) // the faults are in the report
	var found struct{ Findings []advice.Finding }
	if err := json.Unmarshal(b.Bytes(), &found); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return slices.DeleteFunc(found.Findings, func(f advice.Finding) bool { return f.Level != advice.Fault })
}

// named checks that a fault which was put into a file is found there, with its line
// and a remedy.
func named(t *testing.T, list []advice.Finding, f inject.Fault, path, text string) {
	t.Helper()
	i := slices.IndexFunc(list, func(found advice.Finding) bool { return slices.Contains(f.Rules, found.Rule) })
	if i < 0 || list[i].File != path || list[i].Line < 1 || list[i].Line > 1+strings.Count(text, "\n") || list[i].Remedy == "" {
		t.Errorf("%s: %v, want one of %v in %s", f.Name, list, f.Rules, path)
	}
}

// Each fault that people make is named, in at least five of the configurations that
// attach is tried with, and for HAProxy in the form of an old release and a new one.
func TestFaultsOfHAProxy(t *testing.T) {
	paths, err := filepath.Glob("../attach/testdata/haproxy/*.cfg")
	if err != nil || len(paths) < 15 {
		t.Fatal(paths, err)
	}
	for _, version := range []string{"2.6", "3.2"} {
		tried := map[string]int{}
		for _, from := range paths {
			dir := t.TempDir()
			path := filepath.Join(dir, filepath.Base(from))
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			put(t, path, string(text))
			o := attachhaproxy.Options{Paths: []string{path}, Config: filepath.Join(dir, "pointsman.yaml"), Out: dir, Resolve: resolved(version)}
			if filepath.Base(from) == "compose.cfg" {
				o.Backends = []string{"vllm"}
			}
			a, err := attachhaproxy.Attach(o)
			if err != nil {
				t.Fatal(err)
			}
			good := string(a.Changes[0].After)
			made := string(a.Changes[len(a.Changes)-1].After)
			r, err := o.Resolve("pointsman.yaml", []byte("listen: {spoe: '127.0.0.1:9900'}\n"+made))
			if err != nil {
				t.Fatal(err)
			}
			check := Options{HAProxyConfig: []string{path}}
			if put(t, path, good); len(reports(t, r, check)) > 0 {
				t.Errorf("%s: as attached: %v", from, reports(t, r, check))
			}
			for _, f := range inject.HAProxy {
				bad := f.Edit(good)
				if bad == good || f.Rules[0] == "no-body" && strings.Contains(string(text), "wait-for-body") {
					continue // they buffer the body themselves
				}
				put(t, path, bad)
				named(t, reports(t, r, check), f, path, bad)
				tried[f.Name]++
			}
		}
		for _, f := range inject.HAProxy {
			if tried[f.Name] < 5 {
				t.Errorf("%s, %s: tried in %d configurations", version, f.Name, tried[f.Name])
			}
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsOfNginx(t *testing.T) {
	paths, err := filepath.Glob("../attach/testdata/nginx/*/nginx.conf")
	if err != nil || len(paths) < 15 {
		t.Fatal(paths, err)
	}
	r, err := resolved("3.2")("pointsman.yaml", []byte("listen: {spoe: off, nginx: 'unix:///run/pointsman/nginx.sock'}\n"+pools))
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Nginx()
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for _, from := range paths {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Dir(from))); err != nil {
			t.Fatal(err)
		}
		n.Dir = dir
		files, _, err := templates.AttachNginx(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := templates.Write(dir, files); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "nginx.conf")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good, ok := inject.ByHand(strings.ReplaceAll(string(text), "@dir@", dir), dir)
		if !ok {
			continue
		}
		check := Options{NginxConfig: path}
		put(t, path, good)
		before := reports(t, r, check)
		for _, f := range inject.Nginx {
			if slices.ContainsFunc(before, func(b advice.Finding) bool { return slices.Contains(f.Rules, b.Rule) }) {
				t.Errorf("%s: %s before it is put in: %v", from, f.Name, before)
			}
			bad := f.Edit(good)
			if bad == good {
				continue
			}
			put(t, path, bad)
			named(t, reports(t, r, check), f, path, bad)
			tried[f.Name]++
		}
	}
	for _, f := range inject.Nginx {
		if tried[f.Name] < 5 {
			t.Errorf("%s: tried in %d configurations", f.Name, tried[f.Name])
		}
	}
}
