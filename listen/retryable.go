package listen

import (
	"errors"
	"net"
	"syscall"
)

// passing are errors of accept(2) that concern one connection or a shortage,
// not the listener.
var passing = []error{
	syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR, syscall.EPROTO, syscall.EPERM,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENOPROTOOPT, syscall.ENONET,
}

// retryable reports whether a later Accept may succeed.
func retryable(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	for _, e := range passing {
		if errors.Is(err, e) {
			return true
		}
	}
	// net.Error deprecates Temporary because it is vague. Here it only widens
	// the list above.
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
