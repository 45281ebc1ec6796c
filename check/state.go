package check

import (
	"fmt"
	"os"

	"pointsman/resolve"
)

// checkState warns about a state directory that the agent cannot use.
func (rep *report) checkState(c *resolve.Config) {
	dir := c.File.Agent.StateDir
	if dir == "" || dir == "off" {
		return
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		fmt.Fprintf(rep, "warning: agent.state_dir: %v; the agent does not make it, and forgets at a restart what it has learned\n", err)
	case !info.IsDir():
		fmt.Fprintf(rep, "warning: agent.state_dir: %s is not a directory; the agent forgets at a restart what it has learned\n", dir)
	case info.Mode().Perm()&0o022 != 0:
		fmt.Fprintf(rep, "warning: agent.state_dir: %s can be changed by others than its owner; want mode 0700\n", dir)
	}
}
