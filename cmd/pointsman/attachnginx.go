package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"

	attachnginx "pointsman/attach/nginx"
	"pointsman/config"
	"pointsman/resolve"
)

// nginxFlags are what attaching to nginx and detaching have in common.
type nginxFlags struct {
	NginxConfig string `name:"nginx-config" default:"/etc/nginx/nginx.conf" type:"path" help:"Your nginx.conf; its includes are followed (${default})."`
	Out         string `default:"${nginx_dir}" type:"path" help:"Folder of our own files (${default})."`
	Write       bool   `help:"Change the files, after nginx -t of the result, with a backup in OUT/backup. Otherwise only print what would change."`
}

type attachNginxCmd struct {
	Backend []string `help:"Upstream, or host:port of a proxy_pass, that leads to LLM engines; by default those that look like it."`
	Config  string   `short:"c" default:"${default_config}" type:"path" help:"pointsman's configuration, made from yours where there is none (${default})."`
	nginxFlags
}

// detachNginxCmd accepts the other flags of attach and ignores them: the same flags undo
// what a command line did.
type detachNginxCmd struct {
	Backend []string `hidden:""`
	Config  string   `short:"c" hidden:""`
	nginxFlags
}

func (c *attachNginxCmd) options(binary string) attachnginx.Options {
	o := attachnginx.Options{
		Main: c.NginxConfig, Backends: c.Backend, Config: c.Config, Out: c.Out,
		AccessLog: "/var/log/nginx/access.log", ErrorLog: "/var/log/nginx/error.log",
		Resolve: func(name string, text []byte) (*resolve.Config, error) {
			o := resolve.Options{Policies: policies}
			c, err := config.Parse(name, text, os.Getenv, o.Checks())
			if err != nil {
				return nil, err
			}
			return resolve.Resolve(c, o)
		},
	}
	if binary == "" {
		return o
	}
	out, _ := exec.Command(binary, "-V").CombinedOutput()
	for option, to := range map[string]*string{"http-log-path": &o.AccessLog, "error-log-path": &o.ErrorLog} {
		if m := regexp.MustCompile(`--` + option + `=(\S+)`).FindSubmatch(out); m != nil {
			*to = string(m[1])
		}
	}
	return o
}

func (c *attachNginxCmd) Run() error {
	binary := nginxBinary()
	r, err := attachnginx.Attach(c.options(binary))
	if err != nil {
		return asRoot(err)
	}
	for _, a := range r.Asks {
		fmt.Fprintln(os.Stderr, "asks:", a)
	}
	return c.apply(os.Stdout, r, binary)
}

func (c *detachNginxCmd) Run() error {
	r, err := attachnginx.Detach(attachnginx.Options{Main: c.NginxConfig, Out: c.Out})
	if err != nil {
		return asRoot(err)
	}
	return c.apply(os.Stdout, r, nginxBinary())
}

// apply has nginx check the result, and prints or writes it.
func (f *nginxFlags) apply(w io.Writer, r *attachnginx.Result, binary string) error {
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
	switch {
	case binary != "":
		err := r.Verify(func(args ...string) (string, error) {
			out, err := exec.Command(binary, args...).CombinedOutput()
			return string(out), err
		})
		switch {
		case err == nil:
			fmt.Fprintln(os.Stderr, "nginx -t accepts the result")
		case !f.Write && wantsRoot(err):
			unchecked("nginx -t", err)
		default:
			return err
		}
	case f.Write:
		return errors.New("no nginx here to check the result: run this where nginx is, or apply the patch that is printed without --write")
	default:
		fmt.Fprintln(os.Stderr, "no nginx here: the result was not checked")
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
	fmt.Fprintln(os.Stderr, "now reload nginx")
	return nil
}

// nginxBinary finds nginx in the path, or where a plain user's path does not
// lead; empty for none.
func nginxBinary() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
