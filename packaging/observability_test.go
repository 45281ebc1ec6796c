package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
	"go.yaml.in/yaml/v3"

	"pointsman/admin/exposition"
	"pointsman/test/proxies"
)

// dashboard is what is looked at of a Grafana dashboard.
type dashboard struct {
	UID        string
	Title      string
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, RefID string }
	}
}

func board(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("grafana/pointsman.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := sonic.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// rules are the alerts, with their expressions.
func rules(t *testing.T) (list []struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}) {
	t.Helper()
	text, err := os.ReadFile("prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// names finds metrics in an expression.
var names = regexp.MustCompile(`\b(?:pointsman|process|go)_[a-z0-9_]+`)

// known reports whether a name is a sample of a metric that the agent has.
func known(name string) bool { return exposition.FamilyOf(name).Help != "" }

// The dashboard and the alerts ask for metrics that there are.
func TestQueriesNameMetrics(t *testing.T) {
	var all []string
	d := board(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		all = append(all, fmt.Sprint(v.Query))
	}
	for _, r := range rules(t) {
		all = append(all, r.Expr)
	}
	n := 0
	for _, expr := range all {
		for _, name := range names.FindAllString(expr, -1) {
			n++
			if !known(name) {
				t.Errorf("there is no metric %s: %s", name, expr)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d metrics are asked for", n)
	}
}

// Panels have queries and do not cover each other.
func TestDashboard(t *testing.T) {
	d := board(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for y := range p.GridPos.H {
			for x := range p.GridPos.W {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("%s covers %s", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
	}
	if d.UID != "pointsman" || len(d.Panels) < 20 || len(d.Templating.List) != 3 {
		t.Errorf("%s, %d panels", d.UID, len(d.Panels))
	}
}

// Each alert says how bad it is, what it means, and leads to what to do.
func TestAlertsSayWhatToDo(t *testing.T) {
	runbooks, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(runbooks), "\n## "); n != len(rules(t)) {
		t.Errorf("docs/alerts.md has %d parts for %d alerts", n, len(rules(t)))
	}
	for _, r := range rules(t) {
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: %v %v", r.Alert, r.Labels, r.Annotations)
		}
		if want := "docs/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %s", r.Alert, r.Annotations["runbook"], want)
		}
		_, part, ok := strings.Cut(string(runbooks), "\n## "+r.Alert+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		if !ok || !strings.Contains(part, "*"+r.Labels["severity"]+"*") || !strings.Contains(part, "```sh\n") || !strings.Contains(part, "\n- ") {
			t.Errorf("docs/alerts.md: %s has no severity, no command or nothing to do:\n%s", r.Alert, part)
		}
	}
}

// Prometheus' own tool reads the alerts, tries them, and reads the dashboard's queries.
func TestPromtoolRules(t *testing.T) {
	promtool := proxies.Promtool(t)
	output(t, promtool, "check", "rules", "prometheus/alerts.yaml")
	cmd := exec.Command(promtool, "test", "rules", "alerts_test.yaml")
	cmd.Dir = "prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var b strings.Builder
	b.WriteString("groups: [{name: dashboard, rules: [\n")
	n := 0
	for _, p := range board(t).Panels {
		for _, target := range p.Targets {
			n++
			fmt.Fprintf(&b, "{record: 'q%d', expr: '%s'},\n", n, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	b.WriteString("]}]\n")
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, promtool, "check", "rules", path)
}
