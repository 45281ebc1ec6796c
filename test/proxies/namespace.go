package proxies

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network of its own, with cables from this machine to it. It ends with
// the test.
type Namespace struct {
	t      testing.TB
	pid    int
	cables int
}

// NewNamespace makes a network namespace. It needs root.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "a network namespace needs root")
	}
	Tool(t, "ip")
	Tool(t, "nsenter")
	cmd := exec.Command("sleep", "infinity")
	EndWithTest(cmd, syscall.SIGKILL)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	if err := cmd.Start(); err != nil {
		Missing(t, "no network namespace may be made here: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n := &Namespace{t: t, pid: cmd.Process.Pid}
	n.inside("ip", "link", "set", "lo", "up")
	return n
}

// Cable is a network of two addresses, here and in the namespace.
type Cable struct {
	Here, There string
	n           *Namespace
	name        string // of its end there
}

// Cable connects the namespace to this machine.
func (n *Namespace) Cable() *Cable {
	n.t.Helper()
	n.cables++
	net := fmt.Sprintf("10.%d.%d.", 200+rand.IntN(50), rand.IntN(250))
	here := fmt.Sprintf("pm%da%d", n.pid, n.cables)
	c := &Cable{Here: net + "1", There: net + "2", n: n, name: fmt.Sprintf("pm%db%d", n.pid, n.cables)}
	n.run("ip", "link", "add", here, "type", "veth", "peer", "name", c.name, "netns", fmt.Sprint(n.pid))
	n.run("ip", "addr", "add", c.Here+"/30", "dev", here)
	n.run("ip", "link", "set", here, "up")
	n.inside("ip", "addr", "add", c.There+"/30", "dev", c.name)
	c.Mend()
	return c
}

// Cut cuts the cable: what is sent over it is lost.
func (c *Cable) Cut() { c.n.inside("ip", "link", "set", c.name, "down") }

// Mend mends it.
func (c *Cable) Mend() { c.n.inside("ip", "link", "set", c.name, "up") }

// Do runs f so that processes which it starts are in the namespace.
func (n *Namespace) Do(f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	home := n.network("/proc/thread-self/ns/net") // that of the process is its first thread's
	defer home.Close()
	there := n.network(fmt.Sprintf("/proc/%d/ns/net", n.pid))
	defer there.Close()
	n.enter(there)
	defer func() {
		n.enter(home) // a thread that could not come back stays locked, and ends
		runtime.UnlockOSThread()
	}()
	f()
}

func (n *Namespace) network(path string) *os.File {
	n.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return file
}

func (n *Namespace) enter(network *os.File) {
	n.t.Helper()
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		n.t.Fatalf("%s: %v", network.Name(), err)
	}
}

func (n *Namespace) inside(args ...string) {
	n.t.Helper()
	n.run(append([]string{"nsenter", "-t", fmt.Sprint(n.pid), "-n"}, args...)...)
}

func (n *Namespace) run(args ...string) {
	n.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v %s", strings.Join(args, " "), err, out)
	}
}
