package proxies

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/loopback"
)

// FreePort returns a port of 127.0.0.1 as loopback.Ports chooses it.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)
}

// FreePorts returns the first of n ports in sequence, each as FreePort gives it.
func FreePorts(t testing.TB, n int) int {
	t.Helper()
	first, err := loopback.Ports(n)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// Listen listens on an address that was free a moment ago. It waits while another
// process still holds the port.
func Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// States of a connection in the kernel's tables.
const (
	established = "01"
	closeWait   = "08" // the other side has closed
	listening   = "0A"
)

// sockets calls visit with each TCP socket of this machine. local and remote end
// in ":" and the port in four hexadecimal digits.
func sockets(visit func(local, remote, state, inode string)) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// Fields: slot, local address, remote address, state, ..., the tenth
			// is the socket's inode.
			if w := strings.Fields(line); len(w) > 9 {
				visit(w[1], w[2], w[3], w[9])
			}
		}
	}
}

func portSuffix(port string) string {
	n, _ := strconv.Atoi(port)
	return fmt.Sprintf(":%04X", n)
}

// Connected counts the connections to a TCP port of this machine that their
// clients hold open, although the server may have closed them.
func Connected(port string) (n int) {
	suffix := portSuffix(port)
	sockets(func(_, remote, state, _ string) {
		if strings.HasSuffix(remote, suffix) && (state == established || state == closeWait) {
			n++
		}
	})
	return n
}

// listens reports whether the process listens on the TCP port. It reads the
// kernel's tables instead of connecting, because a connection would show up in
// the log of the proxy under test.
func listens(pid int, port string) bool {
	suffix := portSuffix(port)
	found := map[string]bool{}
	sockets(func(local, _, state, inode string) {
		if state == listening && strings.HasSuffix(local, suffix) {
			found["socket:["+inode+"]"] = true
		}
	})
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && found[link] {
			return true
		}
	}
	return false
}

// accepts reports whether the process still has a TCP socket on which it listens.
func accepts(pid string) bool {
	found := map[string]bool{}
	sockets(func(_, _, state, inode string) {
		if state == listening {
			found["socket:["+inode+"]"] = true
		}
	})
	fds, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && found[to] {
			return true
		}
	}
	return false
}
