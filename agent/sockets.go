package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"pointsman/config"
	"pointsman/resolve"
)

// sockets are those that systemd passes, until they are used.
type sockets struct {
	listeners map[string][]net.Listener // by their FileDescriptorName
	packets   []net.PacketConn

	mode  os.FileMode // of the unix sockets that are made here
	group string      // a name or a number; "" = the agent's
}

// inherited returns the sockets that systemd passes.
func inherited() *sockets {
	s := &sockets{listeners: map[string][]net.Listener{}}
	for _, f := range activation.Files(true) {
		if l, err := net.FileListener(f); err == nil {
			s.listeners[f.Name()] = append(s.listeners[f.Name()], l)
		} else if c, err := net.FilePacketConn(f); err == nil {
			s.packets = append(s.packets, c)
		}
		f.Close()
	}
	return s
}

// listen opens an address of the configuration. Sockets of that name from
// systemd replace it; there may be several, such as one inside a chroot.
func (s *sockets) listen(name, address string) ([]net.Listener, error) {
	if ls := s.listeners[name]; len(ls) > 0 {
		delete(s.listeners, name)
		return ls, nil
	}
	network, addr, err := config.ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w", name, err)
	}
	l, err := s.open(network, addr)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w%s", name, err, hint(addr, err))
	}
	return []net.Listener{l}, nil
}

// hint says what to do about an address that cannot be opened.
func hint(addr string, err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Sprintf(": there is no folder %s; pointsman.service creates /run/pointsman, other folders must be there: create it, or choose another path", filepath.Dir(addr))
	case errors.Is(err, syscall.EACCES):
		return ": this user may not open it; run the agent as the user of pointsman.service, or choose another path"
	case errors.Is(err, syscall.EADDRINUSE):
		return ": does an agent run already?"
	}
	return ""
}

// listenPacket opens an address for datagrams, or the socket beside a path, or returns
// the socket from systemd that is bound to it.
func (s *sockets) listenPacket(network, address string) (net.PacketConn, error) {
	if network == "unix" {
		address = resolve.Datagrams(address)
	}
	for i, c := range s.packets {
		if c.LocalAddr().String() == address {
			s.packets = slices.Delete(s.packets, i, i+1)
			return c, nil
		}
	}
	if network != "unix" {
		return net.ListenPacket("udp", address)
	}
	if err := removeStale("unixgram", address); err != nil {
		return nil, err
	}
	c, err := net.ListenPacket("unixgram", address)
	if err != nil {
		return nil, err
	}
	if err := s.restrict(address); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// close closes the sockets that were not used.
func (s *sockets) close(log *slog.Logger) {
	for _, name := range slices.Sorted(maps.Keys(s.listeners)) {
		log.Warn("a socket from systemd is not served: it is off in the configuration, or its name is unknown", "name", name)
		for _, l := range s.listeners[name] {
			l.Close()
		}
	}
	for _, c := range s.packets {
		log.Warn("a datagram socket from systemd is not served: its address is not that of listen.feed", "address", c.LocalAddr().String())
		c.Close()
	}
}

// open listens on an address. The proxy runs as another user and reaches a unix
// socket by its group.
func (s *sockets) open(network, address string) (net.Listener, error) {
	if network != "unix" {
		return net.Listen(network, address)
	}
	if err := removeStale(network, address); err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	if err := s.restrict(address); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// restrict gives a socket the mode and the group that the configuration asks for.
func (s *sockets) restrict(path string) error {
	if s.group != "" {
		id, err := groupID(s.group)
		if err != nil {
			return err
		}
		if err := os.Chown(path, -1, id); err != nil {
			return fmt.Errorf("socket_group %s: %w; the agent's user must be a member", s.group, err)
		}
	}
	return os.Chmod(path, s.mode)
}

// haproxyGroup is HAProxy's group on all distributions.
const haproxyGroup = "haproxy"

// socketGroup is the group of the unix sockets that are made here: that of the
// configuration, or else HAProxy's where it asks and this user is a member.
func socketGroup(l *config.Listen) string {
	if l.SocketGroup != "" || l.SPOE == "" {
		return l.SocketGroup
	}
	id, err := groupID(haproxyGroup)
	if err != nil {
		return ""
	}
	if ours, err := os.Getgroups(); err != nil || !slices.Contains(ours, id) {
		return ""
	}
	return haproxyGroup
}

// groupID is the number of a group.
func groupID(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("socket_group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

// removeStale removes a socket that a killed agent left behind. It removes
// neither a file nor a socket that another process serves.
func removeStale(network, path string) error {
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
	if c, err := net.DialTimeout(network, path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("%s is in use: another agent serves it", path)
	}
	return os.Remove(path)
}
