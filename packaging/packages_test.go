package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bytedance/sonic"

	"pointsman/test/proxies"
)

// built is the folder with what `make release` has made; `make package-test` names it.
func built(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("POINTSMAN_PACKAGES")
	if dir == "" {
		t.Skip("make package-test runs this")
	}
	return dir
}

// one is the only file of a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", pattern, list, err)
	}
	return list[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The scripts of the packages are POSIX shell, and start nothing at the first
// installation.
func TestScripts(t *testing.T) {
	for _, pattern := range []string{"deb/p*", "rpm/p*"} {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) != 3 {
			t.Fatalf("%v, %v", list, err)
		}
		for _, f := range list {
			output(t, "sh", "-n", f)
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				for _, word := range []string{" enable", " start ", " restart "} {
					if !strings.HasPrefix(line, "#") && strings.Contains(line, word) {
						t.Errorf("%s: %s", f, line)
					}
				}
			}
		}
	}
}

// A package is installed, upgraded, removed and purged. What the administrator has
// changed stays until the purge.
func TestPackageLife(t *testing.T) {
	dir := built(t)
	if os.Getuid() != 0 {
		proxies.Missing(t, "dpkg wants root")
	}
	proxies.Tool(t, "dpkg")
	root := t.TempDir()
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "run"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		output(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--force-confdef"}, args...)...)
	}
	there := func(want bool, paths ...string) {
		t.Helper()
		for _, p := range paths {
			if _, err := os.Lstat(filepath.Join(root, p)); (err == nil) != want {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
	deb := one(t, dir, "pointsman_*_"+runtime.GOARCH+".deb")
	dpkg("-i", deb)
	there(true, "usr/bin/pointsman", "usr/lib/systemd/system/pointsman.service", "usr/share/man/man1/pointsman-serve.1.gz", "usr/share/bash-completion/completions/pointsman",
		"usr/share/doc/pointsman/copyright", "usr/share/pointsman/pointsman.schema.json", "usr/share/doc/pointsman/docs/haproxy.md", "etc/default/pointsman")
	there(false, "etc/systemd/system/multi-user.target.wants/pointsman.service", "etc/systemd/system/sockets.target.wants")
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
		if err != nil || !strings.Contains(string(passwd), "\npointsman:") && !strings.HasPrefix(string(passwd), "pointsman:") {
			t.Errorf("no account: %v\n%s", err, passwd)
		}
	}
	if text := output(t, "env", "-u", "POINTSMAN_PACKAGES", filepath.Join(root, "usr/bin/pointsman"), "config", "-c", filepath.Join(root, "etc/pointsman/pointsman.yaml")); !strings.Contains(text, "policy: least_work") {
		t.Errorf("the installed program reads its configuration as: %s", text)
	}

	conf := filepath.Join(root, "etc/pointsman/pointsman.yaml")
	if err := os.WriteFile(conf, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(root, "var/lib/pointsman/state")
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, []byte("learned"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", newer(t, deb))
	if text := output(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${Version} ${Status}", "pointsman"); text != "999.0 install ok installed" {
		t.Errorf("after the upgrade: %s", text)
	}
	if text, err := os.ReadFile(conf); err != nil || string(text) != "# mine\n" {
		t.Errorf("the upgrade has changed the configuration: %v\n%s", err, text)
	}
	there(true, "var/lib/pointsman/state")
	dpkg("-r", "pointsman")
	there(true, "etc/pointsman/pointsman.yaml", "var/lib/pointsman/state")
	there(false, "usr/bin/pointsman", "usr/lib/systemd/system/pointsman.service")
	dpkg("-P", "pointsman")
	there(false, "etc/pointsman", "etc/default/pointsman", "var/lib/pointsman", "usr/share/doc/pointsman")
}

// newer is the same package with a later version and another default configuration.
func newer(t *testing.T, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	output(t, "dpkg-deb", "-R", deb, dir)
	control := filepath.Join(dir, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "Version: ") {
			lines[i] = "Version: 999.0"
		}
	}
	if err := os.WriteFile(control, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr/share/pointsman/pointsman.yaml"), []byte("# a later sample\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "newer.deb")
	output(t, "dpkg-deb", "-Zgzip", "-b", dir, out)
	return out
}

// lintian has nothing to say but what is overridden with a reason.
func TestPackageLintian(t *testing.T) {
	dir := built(t)
	proxies.Tool(t, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		out, _ := exec.Command("lintian", "--fail-on", "error,warning", one(t, dir, "pointsman_*_"+arch+".deb")).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "W:") {
				t.Error(strings.TrimSpace(line))
			}
		}
	}
}

// The image has both architectures, and the program runs as an ordinary user with
// nothing but what is in it.
func TestPackageImage(t *testing.T) {
	dir := filepath.Join(built(t), "image")
	type descriptor struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	read := func(path string, into any) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := sonic.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(d descriptor) string {
		return filepath.Join(dir, "blobs", strings.Replace(d.Digest, ":", "/", 1))
	}
	read(filepath.Join(dir, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("%+v", index)
	}
	read(blob(index.Manifests[0]), &index)
	var arches []string
	for _, m := range index.Manifests {
		arches = append(arches, m.Platform.Architecture)
		read(blob(m), &manifest)
		read(blob(manifest.Config), &config)
		if config.Config.User != "65532:65532" || len(manifest.Layers) != 1 {
			t.Errorf("%+v %+v", config, manifest)
		}
		if m.Platform.Architecture != runtime.GOARCH {
			continue
		}
		root := t.TempDir()
		unpack(t, blob(manifest.Layers[0]), root)
		if os.Getuid() != 0 {
			t.Log("chroot wants root: the program is not run")
			continue
		}
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/usr/bin/pointsman", "version")
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "pointsman ") {
			t.Errorf("in the image: %v\n%s", err, out)
		}
	}
	if !slices.Equal(arches, []string{"amd64", "arm64"}) {
		t.Errorf("architectures %v", arches)
	}
}

func unpack(t *testing.T, layer, root string) {
	t.Helper()
	f, err := os.Open(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, os.FileMode(h.Mode)&0o777); err != nil { //nolint:gosec // our own modes
			t.Fatal(err)
		}
	}
}

// The same commit makes the same bytes.
func TestPackageReproducible(t *testing.T) {
	dir := built(t)
	again := t.TempDir()
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Fields(output(t, filepath.Join(dir, "bin", runtime.GOARCH, "pointsman"), "version"))[1]
	maintainer := strings.TrimSpace(output(t, "dpkg-deb", "-f", one(t, dir, "pointsman_*_amd64.deb"), "Maintainer"))
	cmd := exec.Command("go", "run", ".", "-version", shown, "-maintainer", maintainer, "-dist", again, "release")
	cmd.Dir = "tools"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	second, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
	if err != nil || !bytes.Equal(text, second) {
		t.Errorf("%v\n%s\nand again\n%s", err, text, second)
	}
}
