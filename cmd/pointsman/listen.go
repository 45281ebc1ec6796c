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

// inherited returns the sockets that systemd hands over, by their
// FileDescriptorName.
func inherited() (map[string][]net.Listener, error) { return activation.ListenersWithNames() }

// listen opens an address of the configuration. Sockets of that name from
// systemd stand for it; there may be several, such as one inside a chroot.
func listen(name, address string, inherited map[string][]net.Listener) ([]net.Listener, error) {
	if ls := inherited[name]; len(ls) > 0 {
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
