package config

import (
	"reflect"
	"slices"
)

// Diff returns the keys whose change to next only a restart can apply; a reload
// that finds any refuses by these names. Everything else is applied while
// running, or concerns only what is rendered.
func (c *Config) Diff(next *Config) (restart []string) {
	for _, k := range []struct {
		key     string
		changed bool
	}{
		{"listen.spoe", c.Listen.SPOE != next.Listen.SPOE},
		{"listen.nginx", c.Listen.Nginx != next.Listen.Nginx},
		{"listen.feed", c.Listen.Feed != next.Listen.Feed},
		{"listen.admin", c.Listen.Admin != next.Listen.Admin},
		{"listen.admin_hosts", !slices.Equal(c.Listen.AdminHosts, next.Listen.AdminHosts)},
		{"listen.socket_mode", c.Listen.SocketMode != next.Listen.SocketMode},
		{"listen.socket_group", c.Listen.SocketGroup != next.Listen.SocketGroup},
		{"haproxy.runtime_api", c.HAProxy.RuntimeAPI != next.HAProxy.RuntimeAPI},
		{"cluster", !reflect.DeepEqual(c.Cluster, next.Cluster)},
		{"agent.state_dir", c.Agent.StateDir != next.Agent.StateDir},
		{"haproxy.poll", c.HAProxy.Poll != next.HAProxy.Poll},
	} {
		if k.changed {
			restart = append(restart, k.key)
		}
	}
	return restart
}
