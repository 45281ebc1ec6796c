package loopback

import (
	"fmt"
	"io"
	"net"
	"syscall"
)

// unused reports whether nobody listens on a port, over TCP or UDP.
func unused(port int) bool {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	stream, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	defer Free(stream)
	datagrams, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	Free(datagrams)
	return true
}

// Free closes a listener and returns when its port is free. A process that is being started
// holds what this one has open, listeners too, until it runs its own program.
func Free(l io.Closer) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l.Close()
}
