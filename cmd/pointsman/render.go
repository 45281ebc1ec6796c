package main

import (
	"fmt"
	"os"
	"path/filepath"

	"pointsman/resolve"
	"pointsman/templates"
)

type renderCmd struct {
	What     string `arg:"" enum:"haproxy,nginx,systemd" help:"haproxy, nginx or systemd."`
	Config   string `short:"c" default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Attach   bool   `help:"For a proxy that runs already: what to load beside its configuration, and the lines to paste."`
	Version  string `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	SPOEConf string `name:"spoe-conf" default:"${spoe_conf}" type:"path" help:"Where you install pointsman-spoe.conf (${default})."`
	NginxDir string `name:"nginx-dir" default:"${nginx_dir}" type:"path" help:"Where you install the files for nginx (${default})."`
	Out      string `type:"path" help:"Write the files into this folder instead of printing them."`
}

func (c *renderCmd) Run() error {
	files, snippets, err := c.render()
	if err != nil {
		return err
	}
	if c.Out == "" {
		templates.Print(os.Stdout, files, snippets)
		return nil
	}
	if err := templates.Write(c.Out, files); err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(os.Stderr, "wrote", filepath.Join(c.Out, f.Name))
	}
	templates.Print(os.Stdout, nil, snippets)
	return nil
}

func (c *renderCmd) render() ([]templates.File, []templates.Snippet, error) {
	if c.What == "systemd" {
		return templates.Systemd(), nil, nil
	}
	r, err := resolve.Load(c.Config, resolve.Options{Policies: policies, HAProxyVersion: c.Version})
	if err != nil {
		return nil, nil, err
	}
	if c.What == "nginx" {
		return r.RenderNginx(c.NginxDir, c.Attach)
	}
	return r.RenderHAProxy(c.SPOEConf, c.Attach)
}
