package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"pointsman/config"
)

// handed are the sockets that systemd hands over.
type handed struct {
	listeners map[string][]net.Listener // by their FileDescriptorName
	packets   []net.PacketConn
}

// inherited takes what systemd hands over.
func inherited() handed {
	h := handed{listeners: map[string][]net.Listener{}}
	for _, f := range activation.Files(true) {
		if l, err := net.FileListener(f); err == nil {
			h.listeners[f.Name()] = append(h.listeners[f.Name()], l)
		} else if c, err := net.FilePacketConn(f); err == nil {
			h.packets = append(h.packets, c)
		}
		f.Close()
	}
	return h
}

// listenPacket opens an address for datagrams. A socket from systemd that is
// bound to it stands for it.
func (h handed) listenPacket(address string) (net.PacketConn, error) {
	for _, c := range h.packets {
		if c.LocalAddr().String() == address {
			return c, nil
		}
	}
	return net.ListenPacket("udp", address)
}

// listen opens an address of the configuration. Sockets of that name from
// systemd stand for it; there may be several, such as one inside a chroot.
func (h handed) listen(name, address string) ([]net.Listener, error) {
	if ls := h.listeners[name]; len(ls) > 0 {
		return ls, nil
	}
	network, addr, err := config.ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w", name, err)
	}
	if network == "unix" {
		if err := removeStale(addr); err != nil {
			return nil, fmt.Errorf("listen.%s: %w", name, err)
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w", name, err)
	}
	if network == "unix" {
		// The proxy runs as another user: it reaches the socket by its group.
		if err := os.Chmod(addr, 0o660); err != nil {
			l.Close()
			return nil, fmt.Errorf("listen.%s: %w", name, err)
		}
	}
	return []net.Listener{l}, nil
}

// removeStale removes a socket that a killed agent left behind, and nothing
// else: neither a file nor a socket that somebody serves.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is no socket", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("%s is in use: another agent serves it", path)
	}
	return os.Remove(path)
}
