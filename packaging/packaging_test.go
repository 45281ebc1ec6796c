// Package packaging holds the files that an installation puts beside the
// binary; its tests ask systemd itself about the units.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pointsman/test/proxies"
)

const units = "../templates/systemd"

// installed copies the units to a folder of their own, with a program in the
// agent's place that is there on every machine.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"pointsman.service", "pointsman-spoe.socket", "pointsman-nginx.socket"} {
		text, err := os.ReadFile(filepath.Join(units, name))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), "\nExecStart=pointsman ", "\nExecStart=/bin/true ", 1))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestUnitsVerify(t *testing.T) {
	proxies.Tool(t, "systemd-analyze")
	dir := installed(t)
	// systemd-analyze exits with 0 on an unknown key; that it is silent says more.
	out, err := exec.Command("systemd-analyze", "verify", "--man=no",
		filepath.Join(dir, "pointsman.service"), filepath.Join(dir, "pointsman-spoe.socket"), filepath.Join(dir, "pointsman-nginx.socket")).CombinedOutput()
	var ours []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "pointsman") {
			ours = append(ours, line)
		}
	}
	if err != nil || len(ours) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestServiceIsHardened(t *testing.T) {
	proxies.Tool(t, "systemd-analyze")
	const worst = 2.0
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager",
		filepath.Join(installed(t), "pointsman.service")).CombinedOutput()
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	if level, _ := strconv.ParseFloat(string(m[1]), 64); level > worst {
		t.Errorf("exposure level %v, want at most %v\n%s", level, worst, out)
	}
}

func TestUserIsMade(t *testing.T) {
	proxies.Tool(t, "systemd-sysusers")
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	lines, err := os.Open(filepath.Join(units, "pointsman.sysusers"))
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	sysusers := exec.Command("systemd-sysusers", "--root="+root, "-")
	sysusers.Stdin = lines
	if out, err := sysusers.CombinedOutput(); err != nil {
		t.Fatalf("systemd-sysusers: %v\n%s", err, out)
	}
	group, err := os.ReadFile(filepath.Join(root, "etc/group"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^haproxy:.*:pointsman$`).Match(group) {
		t.Errorf("pointsman is not in the group haproxy:\n%s", group)
	}
}
