package loopback

import (
	"io"
	"net/netip"
	"syscall"
	"time"
)

// unused reports whether nobody listens on a port, over TCP or UDP.
func unused(port int) bool {
	return bindable(syscall.SOCK_STREAM, port) && bindable(syscall.SOCK_DGRAM, port)
}

// bindable reports whether a socket of the kind can have a port. This process starts no other
// while the socket is open: that would hold it too until it runs its own program, and for a
// moment longer than this process waits.
func bindable(kind, port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(syscall.AF_INET, kind, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	if kind == syscall.SOCK_STREAM { // as servers do: ended connections do not count
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
			return false
		}
	}
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}

// freeWithin bounds the wait for a port that another process listens on.
const freeWithin = 10 * time.Second

// Free closes what listens on an address of 127.0.0.1, over TCP, and returns when nobody does,
// or after freeWithin. Processes that are being started hold what this one has open for a
// moment.
func Free(l io.Closer, address string) {
	port := int(netip.MustParseAddrPort(address).Port())
	l.Close()
	for end := time.Now().Add(freeWithin); !bindable(syscall.SOCK_STREAM, port) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
