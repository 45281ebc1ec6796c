package stand

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"pointsman/loopback"
)

// Process is a running program with its descendants, which form a process group.
type Process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	output tail
}

// Processes are the started processes, to be stopped at the end.
type Processes struct{ list []*Process }

// Start starts a program in a clean environment: without the variables that slow
// down Python and Rust, and without proxies. It ends with this program.
func (p *Processes) Start(command string, args ...string) (*Process, error) {
	q := &Process{cmd: exec.Command(command, args...), ended: make(chan struct{})}
	q.cmd.Env = append(cleanEnvironment(os.Environ()),
		// It uses only the loopback interface.
		"LITELLM_LOCAL_MODEL_COST_MAP=True", "HF_HUB_OFFLINE=1", "DO_NOT_TRACK=1")
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	q.cmd.Stdout, q.cmd.Stderr = &q.output, &q.output
	if err := q.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = q.cmd.Wait(); close(q.ended) }()
	p.list = append(p.list, q)
	return q, nil
}

// Stop ends all processes, the last one first.
func (p *Processes) Stop() {
	for _, q := range slices.Backward(p.list) {
		// A killed nginx would not stop its worker processes.
		_ = q.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-q.ended:
		case <-time.After(2 * time.Second):
		}
		q.Kill()
	}
	p.list = nil
}

// Kill kills the process and its descendants at once.
func (q *Process) Kill() {
	_ = syscall.Kill(-q.cmd.Process.Pid, syscall.SIGKILL)
	<-q.ended
}

// Ended reports whether the process has ended by itself, and returns its last output.
func (q *Process) Ended() (string, bool) {
	select {
	case <-q.ended:
		return q.output.String(), true
	default:
		return q.output.String(), false
	}
}

// cleanEnvironment is an environment without variables that distort a measurement.
func cleanEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(entry), "=")
		switch name {
		case "RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "RUST_LOG", "GODEBUG", "GOGC", "GOMEMLIMIT", "GOMAXPROCS":
			return true
		}
		return strings.HasPrefix(name, "PYTHON") || strings.HasSuffix(name, "_PROXY")
	})
}

// tail keeps the last bytes that a process wrote.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const longestTail = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text) - longestTail; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// FreePort returns an address of 127.0.0.1 as loopback.Addresses chooses it.
func FreePort() (string, error) {
	list, err := loopback.Addresses(1)
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// Loopback returns the address of replica i: a host of its own in 127.0.0.0/8, and
// the port of address.
func Loopback(i int, address string) string {
	_, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("127.0.0.%d:%s", i+1, port)
}
