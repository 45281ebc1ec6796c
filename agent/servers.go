package agent

import (
	"errors"
	"fmt"
	"io"
	"net"

	"pointsman/config"
	"pointsman/spoa"
)

// server is one of the agent's servers and the address that it has in the
// configuration; empty is off.
type server struct {
	name, address string
	serve         func(net.Listener) error
}

func (a *Agent) servers() []server {
	l := &a.conf.File.Listen
	list := []server{
		{"spoe", l.SPOE, a.spoe.Serve},
		{"feed", l.Feed, a.feed.Serve},
		{"admin", l.Admin, func(l net.Listener) error { return a.admin.Serve(a.conns.Listener(l)) }},
	}
	if a.nginx != nil {
		list = append(list, server{"nginx", l.Nginx, a.nginx.agent.Serve})
	}
	return list
}

// opened is a socket, and what serves it.
type opened struct {
	socket    io.Closer
	listening []any // attributes of the log line
	serve     func() error
}

// serve opens the sockets, then serves them: whoever hears from one that the agent is ready
// can reach the others. Sockets from systemd that are not used are closed, with a warning.
func (a *Agent) serve(s *sockets) error {
	defer s.close(a.Log)
	list, err := a.open(s)
	for _, o := range list {
		if err != nil {
			o.socket.Close()
			continue
		}
		a.Log.Info("listening", o.listening...)
		go func() {
			if err := o.serve(); err != nil {
				a.failed <- err
			}
		}()
	}
	return err
}

// open opens the sockets. It returns those that it has opened, also with an error.
func (a *Agent) open(s *sockets) (list []opened, err error) {
	s.mode, s.group = a.conf.File.Listen.Mode(), socketGroup(&a.conf.File.Listen)
	for _, server := range a.servers() {
		if server.address == "" {
			continue
		}
		ls, err := s.listen(server.name, server.address)
		if err != nil {
			return list, err
		}
		for _, l := range ls {
			list = append(list, opened{l, []any{"for", server.name, "address", l.Addr().String()}, func() error {
				if err := server.serve(l); err != nil && !errors.Is(err, spoa.ErrServerClosed) {
					return fmt.Errorf("listen.%s: %w", server.name, err)
				}
				return nil
			}})
		}
	}
	// The feed has its port for datagrams too, or the socket beside its own.
	network, address := split(a.conf.File.Listen.Feed)
	if network == "" {
		return list, nil
	}
	c, err := s.listenPacket(network, address)
	if err != nil {
		return list, fmt.Errorf("listen.feed, for datagrams: %w", err)
	}
	read := a.feed.ServeDatagrams
	if a.nginx != nil {
		read = a.nginx.feed.Serve // passes HAProxy's datagrams on
	}
	return append(list, opened{c, []any{"for", "feed, datagrams", "address", c.LocalAddr().String()}, func() error {
		if err := read(c); err != nil {
			return fmt.Errorf("listen.feed, for datagrams: %w", err)
		}
		return nil
	}}), nil
}

// split divides an address of the configuration. Both parts are empty for one that is
// off.
func split(address string) (network, host string) {
	network, host, err := config.ParseAddress(address)
	if err != nil {
		return "", "" // off: the configuration was checked
	}
	return network, host
}
