package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pointsman/config"
	"pointsman/haproxy"
	"pointsman/templates"
)

type checkCmd struct {
	Config        string `default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Version       string `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	HAProxyConfig string `name:"haproxy-config" type:"path" help:"Your own haproxy.cfg, to be told what pointsman misses in it and to have it checked together with the rendered files."`
	NginxConfig   string `name:"nginx-config" type:"path" help:"Your own nginx.conf, likewise, with the rendered files installed."`
}

func (c *checkCmd) Run() error {
	conf, err := load(c.Config)
	if err != nil {
		return err
	}
	if n := len(conf.Pools); n == 1 {
		fmt.Printf("%s: ok, 1 pool\n", c.Config)
	} else {
		fmt.Printf("%s: ok, %d pools\n", c.Config, n)
	}
	for _, w := range warnings(conf) {
		fmt.Println("warning:", w.Error())
	}
	if conf.Listen.Nginx != "" || c.NginxConfig != "" {
		if err := c.nginx(conf); err != nil {
			return err
		}
	}
	if conf.Listen.SPOE == "" && c.HAProxyConfig == "" {
		return nil
	}
	return c.haproxy(conf)
}

// haproxy checks what concerns HAProxy.
func (c *checkCmd) haproxy(conf *config.Config) error {
	binary, err := exec.LookPath("haproxy")
	if err != nil && c.Version == "" && conf.HAProxy.Version == "" {
		fmt.Println("haproxy: not installed here, so what is rendered for it was not tried")
		return nil
	}
	o, err := haproxyOptions(conf, c.Version)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "pointsman-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := checkRendered(o, folder, binary); err != nil {
		return err
	}
	if c.HAProxyConfig == "" {
		return nil
	}
	return c.checkAttached(conf, o, folder, binary)
}

// checkRendered renders the complete set and has HAProxy check it.
func checkRendered(o templates.HAProxy, folder, binary string) error {
	o.SPOEConf = filepath.Join(folder, templates.SPOEFile)
	files, err := templates.RenderHAProxy(o)
	if err != nil {
		return err
	}
	if err := writeFiles(folder, files); err != nil {
		return err
	}
	if binary == "" {
		fmt.Printf("haproxy %s: rendered, but there is no haproxy here to try it\n", o.Version)
		return nil
	}
	if err := haproxyChecks(binary, filepath.Join(folder, templates.ConfigFile)); err != nil {
		if here, e := haproxyVersion(""); e == nil && !here.AtLeast(o.Version.Major, o.Version.Minor) {
			return fmt.Errorf("what is rendered for HAProxy %s is refused by the %s that is installed here: check it where %[1]s is, or give that version", o.Version, here)
		}
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Printf("haproxy %s: accepts the rendered configuration\n", o.Version)
	return nil
}

// checkAttached reads the user's own configuration, tells what it misses, and
// has HAProxy check it together with ours.
func (c *checkCmd) checkAttached(conf *config.Config, o templates.HAProxy, folder, binary string) error {
	text, err := os.ReadFile(c.HAProxyConfig)
	if err != nil {
		return err
	}
	w := haproxy.Wanted{Version: o.Version, Bufsize: o.Bufsize, Inside: listens(spoeUnit)}
	if path, ok := strings.CutPrefix(conf.Listen.SPOE, "unix://"); ok {
		w.Socket = path
	}
	for _, p := range o.Pools {
		w.Pools = append(w.Pools, p.Name)
		if len(p.Replicas) == 0 {
			w.Own = append(w.Own, p.Name)
		}
		w.Queue = max(w.Queue, p.QueueTimeout)
	}
	advice := haproxy.Advise(text, w)
	for _, a := range advice {
		fmt.Printf("%s: %s\n", c.HAProxyConfig, a)
	}
	if binary != "" {
		// Files that name our SPOE file mean the installed one; where it is not
		// installed yet, the one just rendered stands in.
		own := bytes.ReplaceAll(text, []byte(o.SPOEConf), []byte(filepath.Join(folder, templates.SPOEFile)))
		o.SPOEConf = filepath.Join(folder, templates.SPOEFile)
		files, _, err := templates.AttachHAProxy(o)
		if err != nil {
			return err
		}
		files = append(files, templates.File{Name: "own.cfg", Text: string(own)})
		if err := writeFiles(folder, files); err != nil {
			return err
		}
		if err := haproxyChecks(binary, filepath.Join(folder, "own.cfg"), filepath.Join(folder, templates.AttachedFile)); err != nil {
			return fmt.Errorf("%s with %s: %w", c.HAProxyConfig, templates.AttachedFile, err)
		}
		fmt.Printf("%s: haproxy accepts it together with %s\n", c.HAProxyConfig, templates.AttachedFile)
	}
	if len(advice) > 0 {
		return errors.New("something is missing: `pointsman render haproxy --attach` prints the lines")
	}
	return nil
}

// spoeUnit is the installed unit of the sockets that systemd opens for the agent.
const spoeUnit = "/etc/systemd/system/pointsman-spoe.socket"

// listens are the paths that a systemd socket unit listens on; none where it is
// not installed.
func listens(unit string) (paths []string) {
	text, err := os.ReadFile(unit)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "ListenStream=/"); ok {
			paths = append(paths, "/"+path)
		}
	}
	return paths
}

// haproxyChecks runs haproxy -c on files, in their order.
func haproxyChecks(binary string, files ...string) error {
	args := []string{"-c"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("haproxy -c refuses it:\n%s", strings.TrimSpace(string(out)))
	}
	return nil
}
