package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"pointsman/attach"
	attachhaproxy "pointsman/attach/haproxy"
	"pointsman/config"
	"pointsman/resolve"
)

type attachCmd struct {
	HAProxy attachHAProxyCmd `cmd:"" name:"haproxy" help:"Attach to an HAProxy: prints the patch of its configuration, or writes it."`
	Nginx   attachNginxCmd   `cmd:"" name:"nginx" help:"Attach to an nginx: prints the patch of its configuration, or writes it."`
}

type detachCmd struct {
	HAProxy detachHAProxyCmd `cmd:"" name:"haproxy" help:"Take out of HAProxy's configuration what attach put in."`
	Nginx   detachNginxCmd   `cmd:"" name:"nginx" help:"Take out of nginx's configuration what attach put in."`
}

// attachFlags are what attaching and detaching have in common.
type attachFlags struct {
	HAProxyConfig []string `name:"haproxy-config" default:"/etc/haproxy/haproxy.cfg" type:"path" help:"Your configuration, once for each -f of your HAProxy: a file, or a folder of .cfg files (${default})."`
	Out           string   `default:"/etc/pointsman" type:"path" help:"Folder of our own files (${default})."`
	Write         bool     `help:"Change the files, after haproxy -c of the result, with a backup in OUT/backup. Otherwise only print what would change."`
}

type attachHAProxyCmd struct {
	Backend []string `help:"Backend that leads to LLM engines; by default those that look like it."`
	Config  string   `short:"c" default:"${default_config}" type:"path" help:"pointsman's configuration, made from yours where there is none (${default})."`
	OwnFile bool     `help:"Put our sections into OUT/pointsman.cfg instead of the end of your file; HAProxy needs another -f then."`
	Version string   `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	attachFlags
}

// detachHAProxyCmd accepts the other flags of attach and ignores them: the same flags undo
// what a command line did.
type detachHAProxyCmd struct {
	Backend []string `hidden:""`
	Config  string   `short:"c" hidden:""`
	OwnFile bool     `hidden:""`
	Version string   `hidden:""`
	attachFlags
}

func (c *attachHAProxyCmd) options() attachhaproxy.Options {
	defaults, _ := os.ReadFile("/etc/default/haproxy") // there may be none
	return attachhaproxy.Options{
		Paths: c.HAProxyConfig, Backends: c.Backend, Config: c.Config, Out: c.Out, OwnFile: c.OwnFile, Defaults: defaults, DropIn: dropIn(),
		Resolve: func(name string, text []byte) (*resolve.Config, error) {
			o := resolve.Options{Policies: policies, HAProxyVersion: c.Version, Installed: installedHAProxy}
			c, err := config.Parse(name, text, os.Getenv, o.Checks())
			if err != nil {
				return nil, err
			}
			return resolve.Resolve(c, o)
		},
	}
}

// dropIn is where to extend the unit of Debian's HAProxy, which has a variable for
// further options; empty where it is not installed.
func dropIn() string {
	for _, unit := range []string{"/etc/systemd/system/haproxy.service", "/usr/lib/systemd/system/haproxy.service", "/lib/systemd/system/haproxy.service"} {
		text, err := os.ReadFile(unit)
		if err != nil {
			continue
		}
		if strings.Contains(string(text), "$EXTRAOPTS") {
			return "/etc/systemd/system/haproxy.service.d/pointsman.conf"
		}
		return ""
	}
	return ""
}

func (c *attachHAProxyCmd) Run() error {
	r, err := attachhaproxy.Attach(c.options())
	if err != nil {
		return asRoot(err)
	}
	fmt.Fprintf(os.Stderr, "asks for: %s\n", strings.Join(r.Pools, ", "))
	if err := c.apply(os.Stdout, r); err != nil {
		return err
	}
	switch {
	case r.Load != "" && dropIn() != "":
		fmt.Fprintf(os.Stderr, "HAProxy loads %s by a drop-in of its unit, %s, from its next restart on: systemctl daemon-reload && systemctl restart haproxy\n", r.Load, dropIn())
	case r.Load != "":
		fmt.Fprintf(os.Stderr, "HAProxy has to load %s after your own files, by -f on its command line; a reload keeps the old one: restart it\n", r.Load)
	}
	return nil
}

func (c *detachHAProxyCmd) Run() error {
	r, err := attachhaproxy.Detach(attachhaproxy.Options{Paths: c.HAProxyConfig, Out: c.Out, DropIn: dropIn()})
	if err != nil {
		return asRoot(err)
	}
	return c.apply(os.Stdout, r)
}

// apply has HAProxy check the result, and prints or writes it.
func (f *attachFlags) apply(w io.Writer, r *attachhaproxy.Result) error {
	for _, n := range r.Notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	if !r.Changed() {
		fmt.Fprintln(os.Stderr, "nothing to change")
		return nil
	}
	if f.Write {
		if err := mayWrite(r.Changes, f.Out); err != nil {
			return err
		}
	}
	binary, err := haproxyBinary()
	switch {
	case err == nil:
		warnings, err := r.Verify(func(args ...string) (string, error) {
			out, err := exec.Command(binary, args...).CombinedOutput()
			return string(out), err
		})
		switch {
		case err == nil:
			for _, line := range warnings {
				fmt.Fprintln(os.Stderr, "haproxy warns of the result:", line)
			}
			fmt.Fprintln(os.Stderr, "haproxy -c accepts the result")
		case !f.Write && wantsRoot(err):
			unchecked("haproxy -c", err)
		default:
			return err
		}
	case f.Write:
		return errors.New("no haproxy here to check the result: run this where HAProxy is, or apply the patch that is printed without --write")
	default:
		fmt.Fprintln(os.Stderr, "no haproxy here: the result was not checked")
	}
	if !f.Write {
		return preview(w, r.Changes)
	}
	copies, err := writeChanges(w, r.Changes, f.Out)
	if err != nil {
		return err
	}
	for _, name := range copies {
		fmt.Fprintln(w, "backup", name)
	}
	if r.Load == "" && !r.Unload {
		fmt.Fprintln(os.Stderr, "now reload HAProxy")
	}
	return nil
}

// backups is the folder of the backups, below that of our own files.
func backups(out string) string { return filepath.Join(out, "backup") }

// asRoot adds to an error of the rights of this user what to do about it.
func asRoot(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w\nnothing is changed: run this as root", err)
}

// mayWrite reports what this user may not write, before anything is checked or changed.
func mayWrite(changes []attach.Change, out string) error {
	err := attach.Writable(changes, backups(out))
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w\nnothing is changed: run this as root, or without --write for a patch that root can apply", err)
}

// wantsRoot reports whether a proxy's own check may have failed because this user is not
// root: it opens the proxy's logs, certificates and files of process ids.
func wantsRoot(err error) bool {
	return os.Geteuid() != 0 && denied(err.Error())
}

// denied reports whether a proxy says that it may not open something.
func denied(text string) bool { return strings.Contains(strings.ToLower(text), "permission denied") }

// unchecked says that a proxy's check could not be run to its end.
func unchecked(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s needs root here: the result was not checked. --write checks it first.\n", what)
	for line := range strings.Lines(err.Error()) {
		if denied(line) {
			fmt.Fprintln(os.Stderr, " ", strings.TrimSpace(line))
		}
	}
}

// preview prints the change of each file as a diff.
func preview(w io.Writer, changes []attach.Change) error {
	for _, c := range changes {
		if _, err := io.WriteString(w, attach.Diff(c.Path, c.Before, c.After)); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "nothing is written yet: add --write, or apply this with patch -d / -p1")
	return nil
}

// writeChanges writes the changes, says which, and returns the backups that it made below out.
func writeChanges(w io.Writer, changes []attach.Change, out string) (copies []string, err error) {
	copies, err = attach.Write(changes, backups(out), time.Now().Format("20060102-150405"), nil)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		switch {
		case !c.Changes():
		case c.After == nil:
			fmt.Fprintln(w, "removed", c.Path)
		default:
			fmt.Fprintln(w, "wrote", c.Path)
		}
	}
	return copies, nil
}

// haproxyBinary finds HAProxy in the path, or where a plain user's path does
// not lead.
func haproxyBinary() (string, error) {
	if path, err := exec.LookPath("haproxy"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/haproxy")
}

func installedHAProxy() (string, error) {
	binary, err := haproxyBinary()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(binary, "-v").Output()
	return string(out), err
}
