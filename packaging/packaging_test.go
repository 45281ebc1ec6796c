// Package packaging holds the files that an installation puts beside the
// binary; its tests ask systemd itself about the units.
package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
		// Known from systemd 254 on; Debian 12 has 252.
		older := strings.Contains(line, "Unknown key") && (strings.Contains(line, "'RestartSteps'") || strings.Contains(line, "'RestartMaxDelaySec'"))
		if strings.Contains(line, "pointsman") && !older {
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

// Purge removes what enabled the agent and what it wrote, and leaves what a proxy that is
// still attached reads. Removal says so.
func TestPurge(t *testing.T) {
	for _, attached := range []bool{false, true} {
		root := t.TempDir()
		for _, f := range []string{"etc/pointsman/pointsman.yaml", "etc/pointsman/backup/haproxy.cfg.1", "etc/haproxy/haproxy.cfg", "var/lib/pointsman/state", "run/pointsman/spoe.sock",
			"etc/systemd/system/multi-user.target.wants/pointsman.service", "etc/systemd/system/sockets.target.wants/pointsman-spoe.socket",
			"etc/systemd/system/pointsman.service.wants/pointsman-spoe.socket", "etc/systemd/system/multi-user.target.wants/other.service"} {
			put(t, root, f, "")
		}
		if attached {
			put(t, root, "etc/pointsman/pointsman-spoe.conf", "")
			put(t, root, "etc/haproxy/haproxy.cfg", "  filter spoe # pointsman-attach\n")
		}
		said := ""
		for _, script := range []string{"prerm remove", "postrm remove", "postrm purge"} {
			name, what, _ := strings.Cut(script, " ")
			cmd := exec.Command("sh", filepath.Join("deb", name), what)
			cmd.Env = append(os.Environ(), "DPKG_ROOT="+root)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
			said += string(out)
		}
		if strings.Contains(said, "pointsman detach haproxy --write") != attached {
			t.Errorf("attached %v: %s", attached, said)
		}
		var left []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, strings.TrimPrefix(path, root+"/"))
			}
			return err
		})
		want := []string{"etc/haproxy/haproxy.cfg", "etc/systemd/system/multi-user.target.wants/other.service"}
		if attached {
			want = slices.Insert(want, 1, "etc/pointsman/backup/haproxy.cfg.1", "etc/pointsman/pointsman-spoe.conf")
		}
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("attached %v: left %q, want %q (%v)", attached, left, want, err)
		}
	}
}

// The first installation brings the sample, and no later one.
func TestSampleIsInstalledOnce(t *testing.T) {
	proxies.Tool(t, "systemd-sysusers")
	root := t.TempDir()
	put(t, root, "usr/share/pointsman/pointsman.yaml", "sample")
	lines, err := os.ReadFile(filepath.Join(units, "pointsman.sysusers"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "usr/lib/sysusers.d/pointsman.conf", string(lines))
	put(t, root, "etc/group", "")
	conf := filepath.Join(root, "etc/pointsman/pointsman.yaml")
	for _, step := range []struct{ version, before, want string }{
		{"", "", "sample"}, {"", "mine", "mine"}, {"1.0", "mine", "mine"}, {"1.0", "", ""},
	} {
		if err := os.RemoveAll(filepath.Dir(conf)); err != nil {
			t.Fatal(err)
		}
		if step.before != "" {
			put(t, root, "etc/pointsman/pointsman.yaml", step.before)
		}
		cmd := exec.Command("sh", "deb/postinst", "configure", step.version)
		cmd.Env = append(os.Environ(), "DPKG_ROOT="+root)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%+v: %v\n%s", step, err, out)
		}
		if text, _ := os.ReadFile(conf); string(text) != step.want {
			t.Errorf("%+v: %q", step, text)
		}
	}
}

func put(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The account is made, and joins HAProxy's group where there is one: that group is not
// made for it. Where HAProxy comes later, the package's trigger does the same.
func TestUserIsMade(t *testing.T) {
	proxies.Tool(t, "systemd-sysusers")
	for _, c := range []struct {
		group, when, want string
	}{
		{"", "configure", ""}, {"haproxy:x:105:\n", "configure", "haproxy:x:105:pointsman\n"}, {"haproxy:x:105:\n", "triggered", "haproxy:x:105:pointsman\n"},
	} {
		root := t.TempDir()
		for from, to := range map[string]string{"pointsman.sysusers": "usr/lib/sysusers.d/pointsman.conf", "pointsman-haproxy.sysusers": "usr/share/pointsman/pointsman-haproxy.sysusers"} {
			text, err := os.ReadFile(filepath.Join(units, from))
			if err != nil {
				t.Fatal(err)
			}
			put(t, root, to, string(text))
		}
		put(t, root, "usr/share/pointsman/pointsman.yaml", "")
		put(t, root, "etc/group", c.group)
		if c.group != "" && c.when == "configure" {
			put(t, root, "usr/sbin/haproxy", "")
		}
		steps := [][]string{{"configure", ""}}
		if c.when == "triggered" {
			put(t, root, "etc/group", "")
			steps = append(steps, []string{"triggered", "/usr/sbin/haproxy"})
		}
		for i, args := range steps {
			if i == 1 {
				text, err := os.ReadFile(filepath.Join(root, "etc/group"))
				if err != nil {
					t.Fatal(err)
				}
				put(t, root, "etc/group", string(text)+c.group)
				put(t, root, "usr/sbin/haproxy", "")
			}
			cmd := exec.Command("sh", append([]string{"deb/postinst"}, args...)...)
			cmd.Env = append(os.Environ(), "DPKG_ROOT="+root)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
		group, err := os.ReadFile(filepath.Join(root, "etc/group"))
		if err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(`(?m)^haproxy:.*\n`).FindString(string(group)); got != c.want || !strings.Contains(string(group), "pointsman:x:") {
			t.Errorf("%+v: %q of\n%s", c, got, group)
		}
	}
}
