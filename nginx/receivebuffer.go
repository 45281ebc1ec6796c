package nginx

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// receiveBuffer is the wanted size of the feed's socket buffer, in bytes. It holds
// every line of a second in which the agent gets no processor time.
const receiveBuffer = 8 << 20

// growReceiveBuffer asks the kernel for receiveBuffer. The kernel grants what
// net.core.rmem_max allows; a socket from systemd may have more and keeps it.
func growReceiveBuffer(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	size := 0
	_ = raw.Control(func(fd uintptr) {
		// The kernel reports twice the requested size.
		size, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	})
	if size < receiveBuffer {
		_ = c.SetReadBuffer(receiveBuffer)
	}
}

// kernelDrops is how many datagrams to a local UDP port the kernel has dropped
// because the socket's buffer was full.
func kernelDrops(port int) (n uint64) {
	if port == 0 {
		return 0
	}
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// The second field is the local address, the last the drops.
			w := strings.Fields(lines.Text())
			if len(w) > 12 && strings.HasSuffix(w[1], suffix) {
				d, _ := strconv.ParseUint(w[len(w)-1], 10, 64)
				n += d
			}
		}
		f.Close()
	}
	return n
}
