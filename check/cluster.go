package check

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"pointsman/advice"
	"pointsman/cluster"
	"pointsman/resolve"
)

// checkCluster reads the files that the agent needs to start in a cluster.
func (rep *report) checkCluster(c *resolve.Config) {
	k := &c.File.Cluster
	if !k.On() {
		return
	}
	_, err := cluster.ReadSecret(k.Name, k.SecretFile)
	var list []advice.Finding
	if err == nil && k.TLS.On() {
		var faults, warnings []string
		faults, warnings, err = cluster.TLSFiles{Cert: k.TLS.Cert, Key: k.TLS.Key, CA: k.TLS.CA}.Examine(now(), k.Listen, hosts(k.Peers))
		for _, text := range faults {
			list = append(list, advice.Finding{Level: advice.Fault, Rule: "cluster-tls", Problem: text, Remedy: "the other agents refuse its connections, and it goes on alone"})
		}
		for _, text := range warnings {
			list = append(list, advice.Finding{Level: advice.Warning, Rule: "cluster-tls", Problem: text})
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(rep, "warning: %v; only the agent's user can check it\n", err)
	case err != nil:
		list = append(list, advice.Finding{Level: advice.Fault, Rule: "cluster-files", Problem: err.Error(), Remedy: "the agent does not start without"})
	case len(list) == 0:
		fmt.Fprintf(rep, "cluster %s: ok\n", k.Name)
	}
	rep.found(list...)
}

// now is a variable for tests.
var now = time.Now

// hosts are the hosts of addresses that are host:port.
func hosts(addresses []string) (list []string) {
	for _, a := range addresses {
		if host, _, err := net.SplitHostPort(a); err == nil {
			list = append(list, host)
		}
	}
	return list
}
