//go:build !linux || race

package listen

import (
	"errors"
	"syscall"
)

const unwatched = false

// TryRead reads from a descriptor that does not block.
func TryRead(fd uintptr, p []byte) (int, error) { return try(syscall.Read, fd, p) }

func tryWrite(fd uintptr, p []byte) (int, error) { return try(syscall.Write, fd, p) }

func try(call func(fd int, p []byte) (int, error), fd uintptr, p []byte) (int, error) {
	n, err := call(int(fd), p)
	for errors.Is(err, syscall.EINTR) {
		n, err = call(int(fd), p)
	}
	return max(n, 0), err
}
