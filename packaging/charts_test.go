package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The role's files are YAML, and every variable that it uses has a default.
func TestAnsibleRole(t *testing.T) {
	files, err := filepath.Glob("ansible/roles/pointsman/*/*.yml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	defined := map[string]bool{}
	for _, f := range append(files, "ansible/example.yml") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		all.Write(text)
		if m, ok := doc.(map[string]any); ok {
			for name := range m {
				defined[name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`register: (\w+)`).FindAllStringSubmatch(all.String(), -1) {
		defined[m[1]] = true
	}
	for _, name := range regexp.MustCompile(`\bpointsman_[a-z_]+`).FindAllString(all.String(), -1) {
		if !defined[name] {
			t.Errorf("%s has no default", name)
		}
	}
}

// helm finds no fault in the chart and renders it.
func TestChart(t *testing.T) {
	if os.Getenv("POINTSMAN_HELM") == "" {
		t.Skip("make chart runs this")
	}
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Fatal(err)
	}
	output(t, helm, "lint", "--strict", "helm/pointsman")
	text := output(t, helm, "template", "rel", "helm/pointsman", "--kube-version", "1.29", "--set", "config.mode=shadow")
	d := yaml.NewDecoder(strings.NewReader(text))
	kinds, conf := map[string]bool{}, ""
	for {
		var doc struct {
			Kind string
			Data map[string]string
		}
		if d.Decode(&doc) != nil {
			break
		}
		kinds[doc.Kind] = true
		conf += doc.Data["pointsman.yaml"]
	}
	if !kinds["Deployment"] || !kinds["Service"] || !kinds["ConfigMap"] || !strings.Contains(conf, "mode: shadow") {
		t.Errorf("%v\n%s", kinds, conf)
	}
}
