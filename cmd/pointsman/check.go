package main

import (
	"os"

	"pointsman/check"
	"pointsman/resolve"
)

type checkCmd struct {
	Config        string `default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Version       string `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	HAProxyConfig string `name:"haproxy-config" type:"path" help:"Your own haproxy.cfg: reports what pointsman misses in it, and checks it together with the rendered files."`
	NginxConfig   string `name:"nginx-config" type:"path" help:"Your own nginx.conf, likewise, with the rendered files installed."`
}

func (c *checkCmd) Run() error {
	r, err := resolve.Load(c.Config, resolve.Options{Policies: policies, HAProxyVersion: c.Version})
	if err != nil {
		return err
	}
	return check.Run(os.Stdout, r, check.Options{
		Name: c.Config, HAProxyConfig: c.HAProxyConfig, NginxConfig: c.NginxConfig, Rendered: c.Version != "",
	})
}
