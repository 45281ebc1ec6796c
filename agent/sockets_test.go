package agent

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "pm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := &sockets{}
	path := filepath.Join(dir, "s")
	first, err := s.listen("spoe", "unix://"+path)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if _, err := s.listen("spoe", "unix://"+path); err == nil || !strings.Contains(err.Error(), "listen.spoe: "+path+" is in use") {
		t.Errorf("a socket that is served: %v", err)
	}
	first[0].(*net.UnixListener).SetUnlinkOnClose(false)
	first[0].Close() // as after a kill
	second, err := s.listen("spoe", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	second[0].Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.listen("spoe", "unix://"+path); err == nil || !strings.Contains(err.Error(), "exists and is no socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := s.listen("spoe", "unix://"+dir+"/absent/s"); err == nil || !strings.Contains(err.Error(), "there is no folder "+dir+"/absent;") {
		t.Errorf("no folder: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := s.listen("admin", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "does an agent run already?") {
		t.Errorf("a port in use: %v", err)
	}
	if _, err := s.listen("spoe", "nonsense"); err == nil || !strings.Contains(err.Error(), "listen.spoe: ") {
		t.Errorf("no address: %v", err)
	}
}

// The configuration gives our unix sockets their mode and their group.
func TestSocketModeAndGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := &sockets{mode: 0o640, group: strconv.Itoa(os.Getgid())}
	ls, err := s.listen("feed", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	ls[0].Close()
	for _, group := range []string{"no-such-group", "x y"} {
		s.group = group
		if _, err := s.listen("feed", "unix://"+path); err == nil || !strings.Contains(err.Error(), "socket_group") {
			t.Errorf("group %s: %v", group, err)
		}
	}
}

// Sockets from systemd replace those of the configuration, by their names and
// addresses; those that are not used are closed with a warning.
func TestSocketsFromSystemd(t *testing.T) {
	open := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	packet := func() net.PacketConn {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b, unknown := open(), open(), open()
	feed, other := packet(), packet()
	s := &sockets{listeners: map[string][]net.Listener{"spoe": {a, b}, "spo": {unknown}}, packets: []net.PacketConn{other, feed}}
	if ls, err := s.listen("spoe", "unix:///nonexistent/s"); err != nil || len(ls) != 2 || ls[0] != a || ls[1] != b {
		t.Errorf("%v, %v", ls, err)
	}
	if c, err := s.listenPacket("tcp", feed.LocalAddr().String()); err != nil || c != feed {
		t.Errorf("%v, %v", c, err)
	}
	var log strings.Builder
	s.close(slog.New(slog.NewTextHandler(&log, nil)))
	if text := log.String(); !strings.Contains(text, "name=spo\n") || !strings.Contains(text, "address="+other.LocalAddr().String()) || strings.Count(text, "\n") != 2 {
		t.Errorf("logged %s", text)
	}
	if _, err := unknown.Accept(); err == nil {
		t.Error("a socket that is not used is open")
	}
	for _, c := range []io.Closer{a, b, feed} {
		if err := c.Close(); err != nil {
			t.Errorf("a socket that is used was closed: %v", err)
		}
	}
	if c, err := (&sockets{}).listenPacket("tcp", "127.0.0.1:0"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	inherited().close(discard()) // there are none
}
