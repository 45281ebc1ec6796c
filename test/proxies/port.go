package proxies

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var given sync.Map // ports handed out by this process

// FreePort returns a port of 127.0.0.1 that nobody listens on. It gives no port
// twice in one process, and none of those that the kernel gives to outgoing
// connections, which another process could get before it is listened on.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(22_000) // Linux's own begin at 32768
		if _, dup := given.LoadOrStore(port, true); dup {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port on 127.0.0.1")
	return 0
}

// listens reports whether the process listens on the TCP port. It reads the
// kernel's tables instead of connecting, because a connection would show up in
// the log of the proxy under test.
func listens(pid int, port string) bool {
	n, _ := strconv.Atoi(port)
	suffix := fmt.Sprintf(":%04X", n)
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// Fields: slot, local address, remote address, state (0A is
			// LISTEN), ..., the tenth is the socket's inode.
			w := strings.Fields(line)
			if len(w) > 9 && w[3] == "0A" && strings.HasSuffix(w[1], suffix) {
				sockets["socket:["+w[9]+"]"] = true
			}
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && sockets[link] {
			return true
		}
	}
	return false
}
