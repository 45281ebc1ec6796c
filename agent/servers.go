package agent

import (
	"errors"
	"fmt"
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

// serve opens the sockets and serves them. Sockets from systemd that are not
// used are closed, with a warning.
func (a *Agent) serve(s *sockets) error {
	defer s.close(a.Log)
	s.mode, s.group = a.conf.File.Listen.Mode(), socketGroup(&a.conf.File.Listen)
	for _, server := range a.servers() {
		if server.address == "" {
			continue
		}
		ls, err := s.listen(server.name, server.address)
		if err != nil {
			return err
		}
		for _, l := range ls {
			a.Log.Info("listening", "for", server.name, "address", l.Addr().String())
			go func() {
				if err := server.serve(l); err != nil && !errors.Is(err, spoa.ErrServerClosed) {
					a.failed <- fmt.Errorf("listen.%s: %w", server.name, err)
				}
			}()
		}
	}
	return a.serveDatagrams(s)
}

// serveDatagrams opens the feed's port for datagrams too, or the socket beside that of
// the feed.
func (a *Agent) serveDatagrams(s *sockets) error {
	network, address := split(a.conf.File.Listen.Feed)
	if network == "" {
		return nil
	}
	c, err := s.listenPacket(network, address)
	if err != nil {
		return fmt.Errorf("listen.feed, for datagrams: %w", err)
	}
	read := a.feed.ServeDatagrams
	if a.nginx != nil {
		read = a.nginx.feed.Serve // passes HAProxy's datagrams on
	}
	go func() {
		if err := read(c); err != nil {
			a.failed <- fmt.Errorf("listen.feed, for datagrams: %w", err)
		}
	}()
	return nil
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
