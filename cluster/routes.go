package cluster

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// resolveEvery is how often the names of the peers are resolved, and resolveWait how
// long that may take.
const (
	resolveEvery = 5 * time.Second
	resolveWait  = 2 * time.Second
)

// routes keeps the server inside the agent connected to all addresses that the names of its
// peers stand for. The server itself picks one of them at random, and gives up a name that
// stands for this agent alone.
type routes struct {
	options *server.Options // as the server was started
	server  *server.Server
	listen  string // this agent's address
	lookup  func(ctx context.Context, host string) ([]string, error)
	every   time.Duration
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu    sync.Mutex
	peers []peerName
}

// peerName is a peer that is given by a name.
type peerName struct {
	host, port string
	several    bool     // it has stood for more than one other agent, or for this one
	addresses  []string // that it stands for, host:port, without this agent's
}

// namesOf returns the peers that are given by a name.
func namesOf(peers []string) (list []peerName) {
	for _, p := range peers {
		if host, port, err := net.SplitHostPort(p); err == nil && net.ParseIP(host) == nil {
			list = append(list, peerName{host: host, port: port})
		}
	}
	return list
}

// start resolves the names from now on.
func (r *routes) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() {
		t := time.NewTicker(r.every)
		defer t.Stop()
		for {
			r.resolve(ctx)
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	})
}

func (r *routes) stop() {
	if r.cancel != nil {
		r.cancel()
		r.done.Wait()
	}
}

// resolve looks the names up. An address that a name no longer has stays as long as it
// accepts connections: an agent that is not ready may be missing from its name, while one
// that has left for good must not be dialled for ever.
func (r *routes) resolve(ctx context.Context) {
	changed := false
	var connected map[string]bool
	for i := range r.peers { // no other goroutine changes them
		p := &r.peers[i]
		own, cancel := context.WithTimeout(ctx, resolveWait)
		found, err := r.lookup(own, p.host)
		cancel()
		if err != nil || len(found) == 0 {
			continue // the server logs it, and the last ones stay
		}
		var list []string
		for _, host := range found[:min(len(found), MostPeers+1)] {
			if net.ParseIP(host) != nil && !r.ours(host, p.port) {
				list = append(list, net.JoinHostPort(host, p.port))
			}
		}
		r.mu.Lock()
		p.several = p.several || len(found) > 1 || len(list) == 0
		r.mu.Unlock()
		if !p.several {
			continue // the server resolves it
		}
		for _, a := range p.addresses {
			if connected == nil {
				connected = r.connected()
			}
			if len(list) < 2*MostPeers && !slices.Contains(list, a) && (connected[hostOf(a)] || r.listens(ctx, a)) {
				list = append(list, a)
			}
		}
		slices.Sort(list)
		list = slices.Compact(list) // the resolver's order says nothing
		if !slices.Equal(list, p.addresses) {
			r.mu.Lock()
			p.addresses, changed = list, true
			r.mu.Unlock()
		}
	}
	if changed && ctx.Err() == nil {
		r.apply()
	}
}

// apply passes the addresses to the server.
func (r *routes) apply() {
	o := r.options.Clone()
	for i := range r.peers {
		for _, a := range r.peers[i].addresses {
			o.Routes = append(o.Routes, routeURL(a, o.Cluster.Password))
		}
	}
	if err := r.server.ReloadOptions(o); err != nil {
		r.server.Warnf("peers: %v", err)
	}
}

// routeURL is where another agent listens, for the server.
func routeURL(address, password string) *url.URL {
	return &url.URL{Scheme: "nats", Host: address, User: url.UserPassword(routeUser, password)}
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// listens reports whether somebody accepts connections at an address.
func (*routes) listens(ctx context.Context, address string) bool {
	d := net.Dialer{Timeout: resolveWait / 4}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// connected are the hosts that agents are connected from, or to.
func (r *routes) connected() map[string]bool {
	hosts := map[string]bool{}
	if z, err := r.server.Routez(nil); err == nil {
		for _, x := range z.Routes {
			hosts[x.IP] = true
		}
	}
	return hosts
}

// ours reports whether an address is this agent's own.
func (r *routes) ours(host, port string) bool {
	own, ownPort, err := net.SplitHostPort(r.listen)
	if a := r.server.ClusterAddr(); a != nil {
		ownPort = strconv.Itoa(a.Port)
	}
	if err != nil || port != ownPort {
		return false
	}
	ip := net.ParseIP(host)
	if listens := net.ParseIP(own); listens != nil && !listens.IsUnspecified() {
		return ip.Equal(listens)
	}
	list, _ := net.InterfaceAddrs() // without them the server finds its own addresses
	return slices.ContainsFunc(list, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}
