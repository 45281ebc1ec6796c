package debian

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// machine is a Debian in namespaces of its own, with its own systemd. What it changes
// lies in an overlay and goes with it; its only network is its loopback.
type machine struct {
	t       *testing.T
	release string
	root    string
	leader  string // its systemd's pid, seen from here
	nspawn  *exec.Cmd
	ended   chan struct{} // closed when nspawn has ended
	console bytes.Buffer
}

// packages is the folder with what `make packages` has made.
func packages(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("POINTSMAN_PACKAGES")
	if dir == "" {
		t.Skip("make debian runs this")
	}
	if os.Getuid() != 0 {
		t.Fatal("a machine of one's own wants root")
	}
	return dir
}

// boot starts a machine of a release and waits until it is up.
func boot(t *testing.T, release string) *machine {
	t.Helper()
	from := packages(t)
	base := filepath.Join(proxies.Cache(), "debian-"+release)
	if _, err := os.Stat(filepath.Join(base, ".complete")); err != nil {
		t.Fatalf("%v; test/setup.sh debian brings it", err)
	}
	dir := t.TempDir()
	m := &machine{t: t, release: release, root: filepath.Join(dir, "root")}
	for _, d := range []string{"root", "up", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/up,workdir=%s/work", base, dir, dir)
	if err := syscall.Mount("overlay", m.root, "overlay", 0, layers); err != nil {
		t.Fatalf("mount of an overlay: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(m.root, 0); err != nil {
			t.Error(err)
		}
	})
	m.copyIn(filepath.Join(from, "bin", runtime.GOARCH, "pointsman"), "opt/engine")
	m.copyIn(filepath.Join(from, "pointsman_*_"+runtime.GOARCH+".deb"), "root")

	t.Cleanup(func() {
		if t.Failed() && m.leader != "" {
			out, _ := m.try("journalctl --no-pager -o short-monotonic -n 80; systemctl --failed --no-pager")
			t.Logf("journal:\n%s", out)
		}
		_ = m.nspawn.Process.Signal(syscall.SIGTERM)
		<-m.ended
		if t.Failed() {
			t.Logf("console: %s", m.console.String())
		}
	})
	m.start()
	return m
}

// start turns the machine on and waits until it is up.
func (m *machine) start() {
	m.t.Helper()
	args := []string{"-D", m.root, "--register=no", "--private-network", "--boot", "--console=pipe", "--machine=pm-" + m.release}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		args = append(args, "--keep-unit") // there is no systemd here to ask for one
	}
	cmd := exec.Command("systemd-nspawn", args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	cmd.Stdout, cmd.Stderr = &m.console, &m.console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	m.nspawn, m.ended, m.leader = cmd, ended, ""
	children := fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid)
	m.await("systemd", func() bool {
		text, _ := os.ReadFile(children)
		now := strings.TrimSpace(string(text))
		if _, err := strconv.Atoi(now); err != nil {
			return false
		}
		m.leader = now
		out, _ := m.try("systemctl is-system-running --wait")
		return strings.TrimSpace(out) == "running"
	})
	m.t.Logf("%s is up after %.1f s", m.release, time.Since(begin).Seconds())
}

// reboot turns the machine off as its administrator does, and on again.
func (m *machine) reboot() {
	m.t.Helper()
	m.run("systemctl poweroff")
	select {
	case <-m.ended:
	case <-time.After(2 * time.Minute):
		m.t.Fatal("the machine does not turn off")
	}
	m.start()
}

// copyIn puts a file of this machine into a folder of that one.
func (m *machine) copyIn(pattern, folder string) {
	m.t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) != 1 {
		m.t.Fatalf("%s: %v, %v", pattern, list, err)
	}
	to := filepath.Join(m.root, folder)
	if err := os.MkdirAll(to, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if out, err := exec.Command("cp", list[0], to).CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
}

// write makes a file in the machine.
func (m *machine) write(path, text string, mode os.FileMode) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// read is a file of the machine.
func (m *machine) read(path string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// try runs a line of shell in the machine, as root at its terminal would.
func (m *machine) try(line string) (string, error) {
	cmd := exec.Command("nsenter", "--target", m.leader, "--all", "--", "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "bash", "-c", "cd /root && "+line)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a line, which has to succeed, and says how long that took.
func (m *machine) run(line string) string {
	m.t.Helper()
	begin := time.Now()
	out, err := m.try(line)
	m.t.Logf("%5.1f s  # %s\n%s", time.Since(begin).Seconds(), line, out)
	if err != nil {
		m.t.Fatalf("%s: %v", line, err)
	}
	return out
}

// await waits for a condition.
func (m *machine) await(what string, done func() bool) {
	m.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("no %s within two minutes", what)
		}
	}
}
