package cluster

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pointsman/cluster/wire"
)

// NATSOptions say where the bus is: an operator's NATS server, or one inside each agent.
type NATSOptions struct {
	Cluster string
	Agent   string
	Secret  wire.Secret
	Log     *slog.Logger

	URL string      // of the operator's servers; "" = one inside each agent,
	TLS *tls.Config // nil = none

	Listen string   // the address that other agents connect to
	Peers  []string // the addresses that it connects to; a name may stand for several

	// Lookup replaces the system's resolver in tests; nil = the resolver.
	Lookup func(ctx context.Context, host string) ([]string, error)
	every  time.Duration // between two look-ups, in tests
}

// Limits of the bus inside the agent, and of the connection to it. Messages beyond them are
// lost, and requested again.
const (
	natsPending  = 32 << 20 // bytes that wait for a slow peer
	natsMessages = 1 << 16  // that wait to be applied
	natsDeadline = 5 * time.Second
	natsPing     = time.Second
	natsStart    = 10 * time.Second
)

// natsBus implements Bus over NATS.
type natsBus struct {
	conn   *nats.Conn
	server *server.Server // inside the agent; nil = the operator's
	routes *routes        // to peers that are given by names; nil = none is
	auth   *routeAuth
	slow   atomic.Uint64
}

// OpenNATS starts or connects to the bus. A bus that is not there yet is no error.
func OpenNATS(o NATSOptions) (Bus, error) {
	b := &natsBus{}
	options := []nats.Option{
		nats.Name("pointsman " + o.Agent), nats.NoEcho(), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true), nats.Timeout(2 * time.Second),
		nats.PingInterval(natsPing), nats.MaxPingsOutstanding(3),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				b.slow.Add(1)
				return
			}
			o.Log.Warn("cluster: the bus reports an error", "error", err)
		}),
	}
	target := o.URL
	if target == "" {
		if err := b.embed(&o); err != nil {
			return nil, err
		}
		target = "nats://127.0.0.1" // not used: the connection is in the process
		options = append(options, nats.InProcessServer(b.server), nats.UserInfo(routeUser, clientPassword(o.Secret)))
	} else {
		options = append(options,
			nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
				if err != nil {
					o.Log.Warn("cluster: no connection to the bus", "error", err)
				}
			}),
			nats.ReconnectHandler(func(c *nats.Conn) { o.Log.Info("cluster: connected to the bus", "server", c.ConnectedAddr()) }))
		if o.TLS != nil {
			options = append(options, nats.Secure(o.TLS))
		}
	}
	conn, err := nats.Connect(target, options...)
	if err != nil {
		b.shutdown()
		return nil, fmt.Errorf("cluster.nats: %w", err)
	}
	b.conn = conn
	if b.routes != nil {
		b.routes.start() // now: a change of routes disturbs a connection that is being made
	}
	return b, nil
}

// embed starts the NATS server inside the agent.
func (b *natsBus) embed(o *NATSOptions) error {
	host, portText, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("cluster.listen: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("cluster.listen: %w", err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	} else if l, err := net.Listen("tcp", o.Listen); err != nil { // the server would only log it
		return fmt.Errorf("cluster.listen: %w", err)
	} else {
		l.Close()
	}
	password := hex.EncodeToString(o.Secret.Derive("routes"))
	b.auth = &routeAuth{password: password, log: o.Log}
	options := &server.Options{
		// Without a port for clients the server opens none for routes. Nobody needs it.
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: routeUser, Password: clientPassword(o.Secret),
		ServerName: o.Agent, NoSigs: true, NoSystemAccount: true,
		MaxPayload: wire.MostMessage + 64<<10, MaxPending: natsPending, WriteDeadline: natsDeadline,
		PingInterval: natsPing, MaxPingsOut: 3, ReconnectErrorReports: 1,
		CustomRouterAuthentication: b.auth,
		Cluster: server.ClusterOpts{
			Name: o.Cluster, Host: host, Port: port, Username: routeUser, Password: password,
			NoAdvertise: true, PoolSize: -1, PingInterval: natsPing, MaxPingsOut: 3, AuthTimeout: 5, ConnectBackoff: true,
			Compression: server.CompressionOpts{Mode: server.CompressionOff},
		},
	}
	if ip := net.ParseIP(host); port != server.RANDOM_PORT && host != "" && (ip == nil || !ip.IsUnspecified()) {
		// Others learn the address at which this agent listens, not the one that it
		// connects from.
		options.Cluster.Advertise = o.Listen
	}
	if o.TLS != nil {
		options.Cluster.TLSConfig, options.Cluster.TLSTimeout = o.TLS, 5
	}
	for _, peer := range o.Peers {
		options.Routes = append(options.Routes, routeURL(peer, password))
	}
	started := options.Clone()
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	log := &natsLog{log: o.Log, auth: b.auth}
	s.SetLoggerV2(log, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(natsStart) {
		s.Shutdown()
		if fatal := log.fatal.Load(); fatal != nil {
			return fmt.Errorf("cluster.listen: %s", *fatal)
		}
		return fmt.Errorf("cluster.listen: the server does not start at %s", o.Listen)
	}
	b.server = s
	if names := namesOf(o.Peers); len(names) > 0 {
		b.routes = &routes{options: started, server: s, listen: o.Listen, peers: names, lookup: o.Lookup, every: cmp.Or(o.every, resolveEvery)}
		if o.Lookup == nil {
			b.routes.lookup = net.DefaultResolver.LookupHost
		}
	}
	return nil
}

// clientPassword is that of clients of the server inside the agent.
func clientPassword(s wire.Secret) string { return hex.EncodeToString(s.Derive("clients")) }

// Address is where other agents connect, nil without an embedded server.
func (b *natsBus) Address() net.Addr {
	if b.server == nil {
		return nil
	}
	if a := b.server.ClusterAddr(); a != nil {
		return a
	}
	return nil
}

// Publish implements Bus.
func (b *natsBus) Publish(subject string, message []byte) error {
	return b.conn.Publish(subject, message)
}

// Subscribe implements Bus.
func (b *natsBus) Subscribe(subject string, handle func([]byte)) error {
	s, err := b.conn.Subscribe(subject, func(m *nats.Msg) { handle(m.Data) })
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return s.SetPendingLimits(natsMessages, natsPending)
}

// State implements Bus.
func (b *natsBus) State() string {
	if b.server != nil {
		return fmt.Sprintf("embedded NATS, connected to %d other agents", b.server.NumRemotes())
	}
	if b.conn.IsConnected() {
		return "NATS at " + b.conn.ConnectedAddr()
	}
	return "no connection to NATS"
}

// Refused counts connections of agents with another secret, and connections of this agent
// that another one refused for that reason.
func (b *natsBus) Refused() (others, us uint64) {
	if b.auth == nil {
		return 0, 0
	}
	return b.auth.refused.Load(), b.auth.refusedUs.Load()
}

// Slow counts how often messages were dropped because they were not applied in time.
func (b *natsBus) Slow() uint64 { return b.slow.Load() }

// Close implements Bus.
func (b *natsBus) Close() {
	_ = b.conn.FlushTimeout(time.Second) // as much as possible
	b.conn.Close()
	b.shutdown()
}

// shutdown ends the server inside the agent.
func (b *natsBus) shutdown() {
	if b.routes != nil {
		b.routes.stop()
	}
	if b.server != nil {
		b.server.Shutdown()
	}
}

// routeUser is the user name of connections between agents.
const routeUser = "pointsman"

// routeAuth accepts agents that have the secret.
type routeAuth struct {
	password  string
	log       *slog.Logger
	refused   atomic.Uint64
	refusedUs atomic.Uint64
	warned    atomic.Pointer[time.Time]
}

// Check implements server.Authentication.
func (a *routeAuth) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if o.Username == routeUser && subtle.ConstantTimeCompare([]byte(o.Password), []byte(a.password)) == 1 {
		return true
	}
	a.refused.Add(1)
	address := ""
	if r := c.RemoteAddress(); r != nil {
		address = r.String()
	}
	if now, last := time.Now(), a.warned.Load(); (last == nil || now.Sub(*last) >= time.Minute) && a.warned.CompareAndSwap(last, &now) {
		a.log.Warn("cluster: an agent is refused: it has another secret, or another cluster.name", "address", address)
	}
	return false
}

var (
	_ Bus                   = (*natsBus)(nil)
	_ server.Authentication = (*routeAuth)(nil)
)
