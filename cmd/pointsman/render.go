package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pointsman/config"
	"pointsman/templates"
)

type renderCmd struct {
	What     string `arg:"" enum:"haproxy,nginx,systemd" help:"haproxy, nginx or systemd."`
	Config   string `default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Attach   bool   `help:"For a proxy that runs already: what to load beside its configuration, and the lines to paste."`
	Version  string `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	SPOEConf string `name:"spoe-conf" default:"${spoe_conf}" type:"path" help:"Where you install pointsman-spoe.conf (${default})."`
	NginxDir string `name:"nginx-dir" default:"${nginx_dir}" type:"path" help:"Where you install the files for nginx (${default})."`
	Out      string `type:"path" help:"Write the files into this folder instead of printing them."`
}

func (c *renderCmd) Run() error {
	if c.What == "systemd" {
		return c.deliver(templates.Systemd(), nil)
	}
	conf, err := load(c.Config)
	if err != nil {
		return err
	}
	if c.What == "nginx" {
		return c.nginx(conf)
	}
	o, err := haproxyOptions(conf, c.Version)
	if err != nil {
		return err
	}
	o.SPOEConf = c.SPOEConf
	if !c.Attach {
		files, err := templates.RenderHAProxy(o)
		if err != nil {
			return err
		}
		return c.deliver(files, nil)
	}
	files, snippets, err := templates.AttachHAProxy(o)
	if err != nil {
		return err
	}
	return c.deliver(files, snippets)
}

// defaultSPOEConf is where the rendered file is expected to be installed.
const defaultSPOEConf = "/etc/pointsman/" + templates.SPOEFile

// haproxyOptions is what the templates need of the configuration. version wins
// over the configuration's; with neither, the installed HAProxy is asked.
func haproxyOptions(c *config.Config, version string) (templates.HAProxy, error) {
	o := templates.HAProxy{
		Bind:              c.HAProxy.Bind,
		AgentAddress:      c.Listen.SPOE,
		FeedAddress:       c.Listen.Feed,
		SPOEConf:          defaultSPOEConf,
		RuntimeAPI:        c.HAProxy.RuntimeAPI,
		Bufsize:           int(c.HAProxy.Bufsize),
		ProcessingTimeout: c.HAProxy.ProcessingTimeout,
		DefaultPool:       c.DefaultPool,
	}
	if o.AgentAddress == "" || o.FeedAddress == "" {
		return o, errors.New("listen.spoe and listen.feed are off: HAProxy needs both")
	}
	if version == "" {
		version = c.HAProxy.Version
	}
	var err error
	if o.Version, err = haproxyVersion(version); err != nil {
		return o, err
	}
	asked := *c
	asked.HAProxy.Version = o.Version.String()
	c = &asked
	if o.ProcessingTimeout, err = processingTimeout(c, "haproxy.processing_timeout", c.HAProxy.ProcessingTimeout); err != nil {
		return o, err
	}
	for _, p := range c.Ordered() {
		o.Pools = append(o.Pools, templatePool(p))
	}
	return o, queueOptions(c, &o)
}

func templatePool(p *config.Pool) templates.Pool {
	tp := templates.Pool{Name: p.Name, Models: append(append([]string{}, p.Models...), p.LoRA...)}
	for _, r := range p.Ordered() {
		tp.Replicas = append(tp.Replicas, templates.Replica{Name: r.Name, Address: r.Address, Weight: r.Weight})
	}
	return tp
}

// haproxyVersion reads a version as written, or asks the installed binary.
func haproxyVersion(written string) (templates.Version, error) {
	if written != "" {
		return templates.ParseVersion(written)
	}
	out, err := exec.Command("haproxy", "-v").Output()
	if err != nil {
		return templates.Version{}, errors.New("no haproxy in the path to ask for its version: give --version, such as --version 3.2")
	}
	return templates.ParseVersion(string(out))
}

// deliver prints files and snippets, or writes the files into a folder.
func (c *renderCmd) deliver(files []templates.File, snippets []templates.Snippet) error {
	if c.Out != "" {
		if err := writeFiles(c.Out, files); err != nil {
			return err
		}
		for _, f := range files {
			fmt.Fprintln(os.Stderr, "wrote", filepath.Join(c.Out, f.Name))
		}
		printSnippets(os.Stdout, snippets)
		return nil
	}
	for _, f := range files {
		fmt.Printf("# ===== file %s =====\n%s\n", f.Name, strings.TrimLeft(f.Text, "\n"))
	}
	printSnippets(os.Stdout, snippets)
	return nil
}

func printSnippets(w io.Writer, snippets []templates.Snippet) {
	for _, s := range snippets {
		note := ""
		if s.Optional {
			note = " (optional)"
		}
		fmt.Fprintf(w, "# ===== paste into your section %s%s =====\n%s\n", s.Where, note, strings.TrimLeft(s.Text, "\n"))
	}
}

func writeFiles(folder string, files []templates.File) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.Name), []byte(f.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
