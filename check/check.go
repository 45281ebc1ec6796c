// Package check verifies a configuration: it renders the files for HAProxy and nginx, runs
// the proxies' own checkers on them, and compares the user's own proxy configuration with
// what pointsman needs there.
package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"pointsman/advice"
	"pointsman/config"
	"pointsman/nginx"
	"pointsman/resolve"
)

// Options say what else is checked besides the configuration.
type Options struct {
	Name          string   // of the configuration, for the report
	HAProxyConfig []string // the user's own haproxy.cfg and what follows it, empty for none
	NginxConfig   string   // the user's own nginx.conf, empty for none
	Backends      []string // the backends or upstreams of engines, for warnings; empty = those that look like it
	JSON          bool     // the report is one JSON object
	// Rendered is set to check for HAProxy although none is installed and the file does not
	// name its version.
	Rendered bool
}

// ErrFaults is the error of a check that found faults.
var ErrFaults = errors.New("there are faults, each with its remedy above; `pointsman attach haproxy` and `pointsman attach nginx` add lines that are missing, `pointsman render … --attach` prints them")

// report collects the findings of a check, and prints each at once unless it is JSON.
type report struct {
	w    io.Writer
	json bool

	OK       bool             `json:"ok"`
	Error    string           `json:"error,omitempty"`
	Notes    []string         `json:"notes"`
	Findings []advice.Finding `json:"findings"`
}

// Write adds a note.
func (rep *report) Write(line []byte) (int, error) {
	rep.Notes = append(rep.Notes, strings.TrimSuffix(string(line), "\n"))
	if rep.json {
		return len(line), nil
	}
	return rep.w.Write(line)
}

// found adds findings.
func (rep *report) found(list ...advice.Finding) {
	for _, f := range list {
		rep.Findings = append(rep.Findings, f)
		if !rep.json {
			fmt.Fprintln(rep.w, f)
		}
	}
}

// end is the result of the check, whose error is err.
func (rep *report) end(err error) error {
	for _, f := range rep.Findings {
		if err == nil && f.Level == advice.Fault {
			err = ErrFaults
		}
	}
	if !rep.json {
		return err
	}
	if rep.OK = err == nil; err != nil {
		rep.Error = err.Error()
	}
	b, e := json.MarshalIndent(rep, "", "  ")
	if e != nil {
		return e
	}
	if _, e := fmt.Fprintf(rep.w, "%s\n", b); e != nil {
		return e
	}
	return err
}

func newReport(w io.Writer, o Options) *report {
	return &report{w: w, json: o.JSON, Notes: []string{}, Findings: []advice.Finding{}}
}

// Run checks r for both proxies and writes what it finds to w. The error describes what
// does not work; it is ErrFaults if the faults were written to w.
func Run(w io.Writer, r *resolve.Config, o Options) error {
	rep := newReport(w, o)
	return rep.end(rep.all(r, o))
}

func (rep *report) all(c *resolve.Config, o Options) error {
	if err := o.checkBackends(); err != nil {
		return err
	}
	if n := len(c.Pools); n == 1 {
		fmt.Fprintf(rep, "%s: ok, 1 pool\n", o.Name)
	} else {
		fmt.Fprintf(rep, "%s: ok, %d pools\n", o.Name, n)
	}
	for _, warning := range c.Warnings() {
		fmt.Fprintln(rep, "warning:", warning.Error())
	}
	if text := c.File.FeedForOthers(localUsers()); text != "" {
		fmt.Fprintln(rep, "warning:", o.Name+":", text)
	}
	rep.checkState(c)
	rep.checkCluster(c)
	rep.checkTracing(c)
	if c.File.Listen.Nginx != "" || o.NginxConfig != "" {
		if err := rep.checkNginx(c, o); err != nil {
			return err
		}
	}
	if c.File.Listen.SPOE == "" && len(o.HAProxyConfig) == 0 {
		return nil
	}
	return rep.checkHAProxy(c, o)
}

// Lint warns about settings in the user's own configurations that hurt LLM traffic, also
// without pointsman.
func Lint(w io.Writer, o Options) error {
	r := newReport(w, o)
	return r.end(r.lint(o))
}

func (rep *report) lint(o Options) error {
	if err := o.checkBackends(); err != nil {
		return err
	}
	n := len(rep.Findings)
	if len(o.HAProxyConfig) > 0 {
		files, err := readFiles(o.HAProxyConfig)
		if err != nil {
			return err
		}
		rep.found(lintHAProxy(files, o.Backends)...)
	}
	if o.NginxConfig != "" {
		list, err := nginx.Lint(o.NginxConfig, o.Backends)
		if err != nil {
			return err
		}
		rep.found(list...)
	}
	if len(rep.Findings) == n {
		fmt.Fprintln(rep, "nothing that hurts LLM traffic was found; --backend names backends that do not look like engines")
	}
	return nil
}

// localUsers is a variable for tests.
var localUsers = config.LocalUsers

// run runs a checker and returns its output as an error if it fails. Messages call the
// checker what. names replaces names of copies in the output.
func run(what, binary string, names *strings.Replacer, args ...string) error {
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		if names != nil {
			text = names.Replace(text)
		}
		return fmt.Errorf("%s refuses it:\n%s", what, text)
	}
	return nil
}
