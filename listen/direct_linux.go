//go:build linux && !race

package listen

import (
	"syscall"
	"unsafe"
)

// unwatched says that there are system calls that the scheduler does not watch. The race
// detector needs the others: they order what two goroutines do to a socket.
const unwatched = true

// TryRead reads from a descriptor that does not block.
func TryRead(fd uintptr, p []byte) (int, error) { return try(syscall.SYS_READ, fd, p) }

func tryWrite(fd uintptr, p []byte) (int, error) { return try(syscall.SYS_WRITE, fd, p) }

func try(call, fd uintptr, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
