package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"

	"pointsman/cluster"
	"pointsman/config"
	"pointsman/decider"
)

// clustered is the agent's part in its cluster.
type clustered struct {
	node    *cluster.Node
	options cluster.NATSOptions
	bus     cluster.Bus
	cancel  context.CancelFunc
	done    chan struct{}
}

// promptsUse names the secret, derived from the cluster's, that keys the hashes of prompts.
const promptsUse = "prompts"

// newCluster makes d join a cluster, before it has pools; nil if none is configured.
func newCluster(c *config.Cluster, d *decider.Decider, o Options, epoch time.Time) (*clustered, error) {
	if !c.On() {
		return nil, nil
	}
	secret, err := cluster.ReadSecret(c.Name, c.SecretFile)
	if err != nil {
		return nil, err
	}
	var secured *tls.Config
	if c.TLS.On() {
		if secured, err = (cluster.TLSFiles{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}).Read(); err != nil {
			return nil, err
		}
	}
	name := c.Agent
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("cluster.agent: %w", err)
		}
		name = strings.ToValidUTF8(name[:min(len(name), 64)], "")
	}
	d.Secret = secret.Derive(promptsUse)
	node := cluster.New(cluster.Options{
		Cluster: c.Name, Agent: name, Secret: secret, Decider: d, Log: o.Log,
		Clock: func() time.Duration { return time.Since(epoch) },
	})
	return &clustered{node: node, options: cluster.NATSOptions{
		Cluster: c.Name, Agent: name, Secret: secret, Log: o.Log, URL: c.NATS, TLS: secured, Listen: c.Listen, Peers: c.Peers,
	}}, nil
}

// start connects to the other agents.
func (c *clustered) start() error {
	bus, err := cluster.OpenNATS(c.options)
	if err != nil {
		return err
	}
	c.bus = bus
	if err := c.node.Connect(bus); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		c.node.Run(ctx)
	}()
	return nil
}

// stop publishes the remaining events, and leaves the cluster.
func (c *clustered) stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.done
	}
	if c.bus != nil {
		c.bus.Close()
	}
}

// ready is closed when the agent knows what the others know, or shares nothing.
func (c *clustered) ready() <-chan struct{} {
	if c != nil {
		return c.node.Ready()
	}
	now := make(chan struct{})
	close(now)
	return now
}
