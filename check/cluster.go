package check

import (
	"errors"
	"fmt"
	"io/fs"

	"pointsman/advice"
	"pointsman/cluster"
	"pointsman/resolve"
)

// checkCluster reads the files without which the agent does not start.
func (rep *report) checkCluster(c *resolve.Config) {
	k := &c.File.Cluster
	if !k.On() {
		return
	}
	_, err := cluster.ReadSecret(k.Name, k.SecretFile)
	if err == nil && k.TLS.On() {
		_, err = cluster.ReadTLS(k.TLS.Cert, k.TLS.Key, k.TLS.CA)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(rep, "warning: %v; only the agent's user can check it\n", err)
	case err != nil:
		rep.found(advice.Finding{Level: advice.Fault, Rule: "cluster-files", Problem: err.Error(), Remedy: "the agent does not start without"})
	default:
		fmt.Fprintf(rep, "cluster %s: ok\n", k.Name)
	}
}
