package proxies

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	log   buffer
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
	p := &Proc{Dir: t.TempDir(), t: t, bin: bin, args: []string{"-db"}}
	files := append([]File{{"haproxy.cfg", cfg}}, extra...)
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, f.Name), []byte(f.Text), 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".cfg") {
			p.args = append(p.args, "-f", f.Name)
		}
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

// Log returns what HAProxy wrote to its standard output and error so far.
func (p *Proc) Log() string { return p.log.String() }

// Reload starts a new process that takes over the listeners, from the old one's
// runtime API where it exposes them, and lets the old one finish what it has in
// flight. It returns when the new one runs. (A master process would run the
// binary again without its loader, so there is none.)
func (p *Proc) Reload() {
	p.t.Helper()
	args := []string{"-sf", strconv.Itoa(p.cur.cmd.Process.Pid)}
	if p.api != "" {
		args = append([]string{"-x", p.api}, args...)
	}
	p.spawn(args...)
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

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
