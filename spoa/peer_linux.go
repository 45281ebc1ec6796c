package spoa

import (
	"net"
	"syscall"
)

// peer is the pid of the process that connected over a unix socket, 0 if it is not to
// be seen from here.
func peer(sock net.Conn) (pid int) {
	u, ok := sock.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
