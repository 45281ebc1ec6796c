// Package check tries a configuration: it renders what HAProxy and nginx need,
// has their own checkers read it, and compares the user's own proxy
// configuration with what pointsman needs there.
package check

import (
	"fmt"
	"io"
	"os/exec"
	"strings"

	"pointsman/resolve"
)

// Options say what is checked beside the configuration itself.
type Options struct {
	Name          string // of the configuration, for the report
	HAProxyConfig string // the user's own haproxy.cfg, empty for none
	NginxConfig   string // the user's own nginx.conf, empty for none
	// Rendered is set when HAProxy is to be checked for although none is
	// installed and the file does not name its version.
	Rendered bool
}

// Run checks r for both proxies and writes what it finds to w. The error says
// what does not work.
func Run(w io.Writer, r *resolve.Config, o Options) error {
	if n := len(r.Pools); n == 1 {
		fmt.Fprintf(w, "%s: ok, 1 pool\n", o.Name)
	} else {
		fmt.Fprintf(w, "%s: ok, %d pools\n", o.Name, n)
	}
	for _, warning := range r.Warnings() {
		fmt.Fprintln(w, "warning:", warning.Error())
	}
	if r.File.Listen.Nginx != "" || o.NginxConfig != "" {
		if err := checkNginx(w, r, o.NginxConfig); err != nil {
			return err
		}
	}
	if r.File.Listen.SPOE == "" && o.HAProxyConfig == "" {
		return nil
	}
	return checkHAProxy(w, r, o)
}

// run runs a checker, which messages call what, and returns its output as an
// error when it fails.
func run(what, binary string, args ...string) error {
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s refuses it:\n%s", what, strings.TrimSpace(string(out)))
	}
	return nil
}
