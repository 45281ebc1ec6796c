package proxies

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// File is a file to lay beside the configuration. One whose name ends in .cfg
// is loaded after the main configuration, by a further -f.
type File struct{ Name, Text string }

// Proc is a running HAProxy. Its methods are for the test's own goroutine;
// Log may be called from any.
type Proc struct {
	Dir string // the working folder, which holds the configuration

	t     testing.TB
	bin   Binary
	args  []string
	ports []string // that the configuration binds
	api   string   // runtime API socket that passes listeners on, or empty
	log   Buffer
	cur   *process
	all   []*process
}

// process is one operating system process of a Proc.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

var (
	bindLine = regexp.MustCompile(`(?m)^\s*bind\s+\S*:(\d+)`)
	apiLine  = regexp.MustCompile(`(?m)^\s*stats\s+socket\s+(?:unix@)?(/\S+).*\bexpose-fd\s+listeners`)
)

// Start runs HAProxy with the configuration in a folder of its own, where
// relative paths in it begin, and returns when it listens on every port that
// the configuration binds. It is stopped when the test ends.
func Start(t testing.TB, bin Binary, cfg string, extra ...File) *Proc {
	t.Helper()
	dir := t.TempDir()
	var load []string
	for _, f := range append([]File{{Name: "haproxy.cfg", Text: cfg}}, extra...) {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".cfg") {
			load = append(load, f.Name)
		}
	}
	return StartIn(t, bin, dir, load...)
}

// StartIn is Start with what lies in a folder already: load are the files, and
// folders of .cfg files, that HAProxy loads from it, in their order.
func StartIn(t testing.TB, bin Binary, dir string, load ...string) *Proc {
	t.Helper()
	p := &Proc{Dir: dir, t: t, bin: bin, args: []string{"-db"}}
	var files []File
	for _, name := range load {
		p.args = append(p.args, "-f", name)
		files = append(files, cfgs(t, dir, name)...)
	}
	for _, f := range files {
		for _, m := range bindLine.FindAllStringSubmatch(f.Text, -1) {
			p.ports = append(p.ports, m[1])
		}
		if m := apiLine.FindStringSubmatch(f.Text); m != nil {
			p.api = m[1]
		}
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			for _, f := range files {
				t.Logf("HAProxy %s, %s:\n%s", bin.Version, f.Name, f.Text)
			}
			t.Logf("HAProxy %s wrote:\n%s", bin.Version, p.Log())
		}
	})
	p.spawn()
	return p
}

// cfgs reads a file, or the .cfg files of a folder.
func cfgs(t testing.TB, dir, name string) (files []File) {
	t.Helper()
	names := []string{name}
	if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
		if names, err = filepath.Glob(filepath.Join(dir, name, "*.cfg")); err != nil {
			t.Fatal(err)
		}
		for i := range names {
			names[i] = filepath.Join(name, filepath.Base(names[i]))
		}
	}
	for _, n := range names {
		text, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: n, Text: string(text)})
	}
	return files
}

// Log returns what HAProxy wrote to its standard output and error so far.
func (p *Proc) Log() string { return p.log.String() }

// Pid is the id of its newest process.
func (p *Proc) Pid() string { return strconv.Itoa(p.cur.cmd.Process.Pid) }

// Reload starts a new process that takes over the listeners, from the old one's
// runtime API where it exposes them, and lets the old one finish what it has in
// flight. It returns when the new one runs and the old one takes no more. (A master process would run the
// binary again without its loader, so there is none.)
func (p *Proc) Reload() {
	p.t.Helper()
	args := []string{"-sf", strconv.Itoa(p.cur.cmd.Process.Pid)}
	if p.api != "" {
		args = append([]string{"-x", p.api}, args...)
	}
	old := p.cur
	p.spawn(args...)
	for deadline := time.Now().Add(15 * time.Second); p.listensStill(old); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("HAProxy %s still listens after a reload", p.bin.Version)
		}
	}
}

// listensStill reports whether a process takes connections on any port.
func (p *Proc) listensStill(proc *process) bool {
	select {
	case <-proc.done:
		return false
	default:
	}
	return slices.ContainsFunc(p.ports, func(port string) bool { return listens(proc.cmd.Process.Pid, port) })
}

// Kill ends the running process at once, in mid-request.
func (p *Proc) Kill() {
	p.cur.cmd.Process.Kill()
	<-p.cur.done
}

// Restart starts a process anew, after Kill.
func (p *Proc) Restart() {
	p.t.Helper()
	p.spawn()
}

// spawn starts a process and waits until it serves.
func (p *Proc) spawn(args ...string) {
	p.t.Helper()
	cmd := p.bin.Command(append(append([]string{}, p.args...), args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, &p.log, &p.log
	EndWithTest(cmd, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	proc := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(proc.done)
	}()
	p.cur, p.all = proc, append(p.all, proc)

	deadline := time.Now().Add(15 * time.Second)
	for !p.serves(cmd.Process.Pid) {
		select {
		case <-proc.done:
			p.t.Fatalf("HAProxy %s ended: %v", p.bin.Version, cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("HAProxy %s does not listen on %v", p.bin.Version, p.ports)
		}
	}
}

// serves reports whether the process has bound every port.
func (p *Proc) serves(pid int) bool {
	for _, port := range p.ports {
		if !listens(pid, port) {
			return false
		}
	}
	return true
}

// stop ends every process that was started and waits for it.
func (p *Proc) stop() {
	for _, proc := range p.all {
		proc.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, proc := range p.all {
		select {
		case <-proc.done:
		case <-time.After(3 * time.Second):
			proc.cmd.Process.Kill()
			<-proc.done
		}
	}
}

// EndWithTest has the kernel send sig to the process when the test process ends
// in whatever way. It is called before the process is started.
func EndWithTest(cmd *exec.Cmd, sig syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: sig}
}

// Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
