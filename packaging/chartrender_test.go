package packaging

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// chart renders the chart's templates as helm does, with the functions that these use.
func chart(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	indent := func(n int, text string) string {
		pad := strings.Repeat(" ", n)
		return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := all.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"required": func(message string, v any) (any, error) {
			if m, ok := v.(map[string]any); v == nil || ok && len(m) == 0 {
				return nil, fmt.Errorf("%s", message)
			}
			return v, nil
		},
		"default": func(other, v any) any {
			if v == nil || v == "" {
				return other
			}
			return v
		},
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				m[pairs[i].(string)] = pairs[i+1]
			}
			return m
		},
		"mergeOverwrite": func(to, from map[string]any) map[string]any { maps.Copy(to, from); return to },
		"omit": func(m map[string]any, keys ...string) map[string]any {
			m = maps.Clone(m)
			maps.DeleteFunc(m, func(k string, _ any) bool { return slices.Contains(keys, k) })
			return m
		},
		"quote":     func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"indent":    indent,
		"nindent":   func(n int, text string) string { return "\n" + indent(n, text) },
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	})
	files, err := filepath.Glob("helm/pointsman/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := all.New(filepath.Base(f)).Parse(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	done := map[string]string{}
	for _, f := range files {
		if filepath.Ext(f) != ".yaml" {
			continue
		}
		var b bytes.Buffer
		data := map[string]any{"Values": values, "Release": map[string]any{"Name": "rel", "Namespace": "default"}, "Chart": map[string]any{"AppVersion": "1.0.0"}}
		if err := all.ExecuteTemplate(&b, filepath.Base(f), data); err != nil {
			t.Fatal(err)
		}
		done[filepath.Base(f)] = b.String()
	}
	return done
}

// The chart's configuration is one that the program takes, and HAProxy's is made from it
// by the very command of the chart's init container.
func TestPackageChart(t *testing.T) {
	binary := filepath.Join(built(t), "bin", runtime.GOARCH, "pointsman")
	program := func(args ...string) string {
		t.Helper()
		// It refuses variables of its own prefix that it does not know.
		return output(t, "env", append([]string{"-u", "POINTSMAN_PACKAGES", binary}, args...)...)
	}
	text, err := os.ReadFile("helm/pointsman/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	values["config"] = map[string]any{"mode": "shadow"}
	files := chart(t, values)
	var service any
	if err := yaml.Unmarshal([]byte(files["service.yaml"]), &service); err != nil {
		t.Errorf("%v\n%s", err, files["service.yaml"])
	}
	var config struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(files["configmap.yaml"]), &config); err != nil {
		t.Fatalf("%v\n%s", err, files["configmap.yaml"])
	}
	type container struct {
		Name string
		Args []string
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []container `yaml:"initContainers"`
					Containers     []container
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(files["deployment.yaml"]), &deployment); err != nil {
		t.Fatalf("%v\n%s", err, files["deployment.yaml"])
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 2 {
		t.Fatalf("%+v", pod)
	}
	dir := t.TempDir()
	put(t, dir, "pointsman.yaml", config.Data["pointsman.yaml"])
	here := strings.NewReplacer("/etc/pointsman", dir, "/usr/local/etc/haproxy", filepath.Join(dir, "haproxy"))
	if out := program("config", "--config", filepath.Join(dir, "pointsman.yaml")); !strings.Contains(out, "mode: shadow") || !strings.Contains(out, "state_dir: /var/lib/pointsman") {
		t.Errorf("the configuration in force is\n%s", out)
	}
	var args []string
	for _, a := range pod.InitContainers[0].Args {
		args = append(args, here.Replace(a))
	}
	program(args...)
	for i, c := range pod.Containers {
		if c.Name != []string{"haproxy", "pointsman"}[i] {
			t.Errorf("container %d is %s", i, c.Name)
		}
		for _, a := range c.Args {
			if file := here.Replace(a); file != a {
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		}
	}
	rendered, err := os.ReadFile(filepath.Join(dir, "haproxy/haproxy.cfg"))
	if err != nil || !strings.Contains(string(rendered), filepath.Join(dir, "haproxy/pointsman-spoe.conf")) || !strings.Contains(string(rendered), "/run/pointsman/haproxy.sock") {
		t.Errorf("%v\n%s", err, rendered)
	}
}
