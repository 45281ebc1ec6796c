package proxies

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nginxes are the nginx that the unpacked suites carry.
var nginxes = []struct{ name, nginx string }{{"trixie", "1.26"}, {"forky", "1.30"}}

// Nginxes is HAProxies for nginx: that in PATH (1.22 on Debian 12) and those that
// test/setup.sh unpacked.
func Nginxes(t testing.TB) []Binary {
	t.Helper()
	var found []Binary
	add := func(what string, argv ...string) {
		v, err := version(argv)
		if err == nil {
			found = append(found, Binary{v, argv})
			return
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s does not run (%v); test/setup.sh installs it", what, err)
		}
		t.Logf("%s does not run (%v); test/setup.sh installs it", what, err)
	}
	add("nginx in PATH", inPath("nginx"))
	for _, s := range nginxes {
		add("nginx "+s.nginx+" of "+s.name, unpacked(s.name, "nginx")...)
	}
	if len(found) == 0 {
		t.Skip("no nginx on this machine; test/setup.sh installs it")
	}
	return found
}

// Nginx is a running nginx. Its methods are for the test's own goroutine; Log
// may be called from any.
type Nginx struct {
	Dir string // the working folder, which holds the configuration

	t     testing.TB
	bin   Binary
	args  []string
	ports []string
	log   Buffer
	cur   *process
}

var listenLine = regexp.MustCompile(`(?m)^\s*listen\s+(?:\S+:)?(\d+)\b`)

// StartNginx runs nginx with the configuration in a folder of its own, where
// its pid, its logs and its temporary files go too, and returns when it listens
// on every port. It is stopped when the test ends.
func StartNginx(t testing.TB, bin Binary, conf string, extra ...File) *Nginx {
	t.Helper()
	n := &Nginx{Dir: t.TempDir(), t: t, bin: bin}
	n.Write(File{"nginx.conf", conf})
	n.Write(extra...)
	n.start(conf)
	return n
}

// StartNginxIn is StartNginx with what lies in a folder already. The files there
// are made to keep to it.
func StartNginxIn(t testing.TB, bin Binary, dir string) *Nginx {
	t.Helper()
	n := &Nginx{Dir: dir, t: t, bin: bin}
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		now := within(dir, string(text))
		if d.Name() == "nginx.conf" {
			now = kept(dir, now)
		}
		fmt.Fprintf(&all, "# %s\n%s\n", path, now)
		if now == string(text) {
			return nil
		}
		return os.WriteFile(path, []byte(now), 0o640)
	})
	if err != nil {
		t.Fatal(err)
	}
	n.start(all.String())
	return n
}

// start starts what is in the folder. conf is all of it, or the main part.
func (n *Nginx) start(conf string) {
	n.t.Helper()
	for _, m := range listenLine.FindAllStringSubmatch(conf, -1) {
		n.ports = append(n.ports, m[1])
	}
	n.args = []string{"-p", n.Dir, "-c", filepath.Join(n.Dir, "nginx.conf"), "-g", "daemon off;" + asRoot()}
	n.t.Cleanup(func() {
		n.stop()
		if n.t.Failed() {
			n.t.Logf("nginx %s, nginx.conf:\n%s", n.bin.Version, conf)
			n.t.Logf("nginx %s wrote:\n%s", n.bin.Version, n.Log())
		}
	})
	n.spawn()
}

// asRoot keeps the workers of an nginx that root starts in the folder's reach.
func asRoot() string {
	if os.Getuid() == 0 {
		return " user root;"
	}
	return ""
}

// Write lays files into the folder. The configuration is made to keep to it.
func (n *Nginx) Write(files ...File) {
	n.t.Helper()
	for _, f := range files {
		if f.Name == "nginx.conf" {
			f.Text = kept(n.Dir, f.Text)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(n.Dir, f.Name)), 0o755); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.Dir, f.Name), []byte(f.Text), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
}

// within has logs and the pid of a part of a configuration lie in a folder.
func within(dir, conf string) string {
	return strings.NewReplacer("/var/log/nginx/error.log", "stderr", "/var/log/nginx/", dir+"/", "/run/nginx.pid", dir+"/nginx.pid").Replace(conf)
}

// httpBlock matches the begin of the http block, at a line's end or not.
var httpBlock = regexp.MustCompile(`(?m)(^|[\s;}])http\s*\{(\s*\n)?`)

// kept makes a configuration keep to a folder.
func kept(dir, conf string) string {
	conf = within(dir, conf)
	at := httpBlock.FindStringIndex(conf)
	if at == nil {
		return conf
	}
	begin, end := "    ", ";\n"
	if conf[at[1]-1] != '\n' {
		begin, end = "", ";"
	}
	var temp strings.Builder
	for _, m := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s%s_temp_path %s/%s%s", begin, m, dir, m, end)
	}
	return conf[:at[1]] + temp.String() + conf[at[1]:]
}

// CheckNginx has nginx check a configuration, and returns what it says.
func CheckNginx(t testing.TB, bin Binary, conf string, extra ...File) (string, error) {
	t.Helper()
	n := &Nginx{Dir: t.TempDir(), t: t}
	n.Write(File{"nginx.conf", conf})
	n.Write(extra...)
	cmd := bin.Command("-t", "-p", n.Dir, "-c", filepath.Join(n.Dir, "nginx.conf"), "-g", asRoot())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Log returns what nginx wrote to its standard output and error so far.
func (n *Nginx) Log() string { return n.log.String() }

// Reload has the master start new workers and let the old ones finish what they
// have in flight. It returns when there are new ones.
func (n *Nginx) Reload() {
	n.t.Helper()
	old := map[string]bool{}
	for _, w := range n.Workers() {
		old[w] = true
	}
	n.cur.cmd.Process.Signal(syscall.SIGHUP)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		serves, left := false, false
		for _, w := range n.Workers() {
			serves = serves || !old[w]
			left = left || old[w] && accepts(w)
		}
		if serves && !left {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatal("nginx has no new workers, or old ones still accept connections")
		}
	}
}

// Workers are the process ids of the workers, old ones included.
func (n *Nginx) Workers() []string {
	pid := n.cur.cmd.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// KillWorkers ends the workers at once, in mid-request; the master starts
// others.
func (n *Nginx) KillWorkers() {
	n.t.Helper()
	for _, w := range n.Workers() {
		pid, err := strconv.Atoi(w)
		if err != nil {
			n.t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			n.t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

func (n *Nginx) spawn() {
	n.t.Helper()
	cmd := n.bin.Command(n.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.Dir, &n.log, &n.log
	EndWithTest(cmd, syscall.SIGTERM) // upon which the master ends its workers
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.cur = &process{cmd, make(chan struct{})}
	go func(p *process) {
		_ = p.cmd.Wait()
		close(p.done)
	}(n.cur)
	deadline := time.Now().Add(15 * time.Second)
	for !n.serves() {
		select {
		case <-n.cur.done:
			n.t.Fatalf("nginx %s ended: %v", n.bin.Version, cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("nginx %s does not listen on %v", n.bin.Version, n.ports)
		}
	}
}

// serves reports whether the master has bound every port and has workers.
func (n *Nginx) serves() bool {
	for _, port := range n.ports {
		if !listens(n.cur.cmd.Process.Pid, port) {
			return false
		}
	}
	return len(n.Workers()) > 0
}

func (n *Nginx) stop() {
	n.cur.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.cur.done:
	case <-time.After(5 * time.Second):
		n.cur.cmd.Process.Kill()
		<-n.cur.done
	}
}
