//go:build !linux

package listen

import (
	"errors"
	"net"
	"time"
)

// Polled is a socket of datagrams that wakes its reader only while it is watched. There are
// none here.
type Polled struct{}

// NewPolled fails.
func NewPolled(net.PacketConn, int) (*Polled, error) { return nil, errors.ErrUnsupported }

// Watch does nothing.
func (*Polled) Watch(bool) error { return nil }

// Watched reports true.
func (*Polled) Watched() bool { return true }

// Drain does nothing.
func (*Polled) Drain(func([]byte)) bool { return true }

// Serve returns at once.
func (*Polled) Serve(time.Duration, func([]byte)) error { return nil }

// Close does nothing.
func (*Polled) Close() {}
