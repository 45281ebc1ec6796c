package main

import (
	"errors"
	"os"

	"pointsman/check"
	"pointsman/resolve"
)

type checkCmd struct {
	Config        string   `default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Version       string   `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	HAProxyConfig []string `name:"haproxy-config" sep:"none" type:"path" help:"Your own haproxy.cfg, or its folder; again for each further -f: reports what keeps pointsman from being asked, and what hurts LLM traffic, and checks it together with the rendered files."`
	NginxConfig   string   `name:"nginx-config" type:"path" help:"Your own nginx.conf, likewise, with the rendered files installed."`
	Backend       []string `help:"A backend or upstream of engines, for the warnings; by default those that look like it."`
	Lint          bool     `help:"Only warn of what hurts LLM traffic in your own configuration; needs no pointsman."`
	JSON          bool     `help:"Print the result as one JSON object."`
}

// Help lists the exit codes.
func (c *checkCmd) Help() string {
	return "Exit codes: 0 no faults (there may be warnings), 1 faults, or a configuration that is refused, 2 wrong use."
}

func (c *checkCmd) Run() error {
	o := check.Options{
		Name: c.Config, HAProxyConfig: c.HAProxyConfig, NginxConfig: c.NginxConfig, Backends: c.Backend, JSON: c.JSON, Rendered: c.Version != "",
	}
	if c.Lint {
		if len(o.HAProxyConfig) == 0 && o.NginxConfig == "" {
			return usageError{errors.New("--lint needs --haproxy-config or --nginx-config")}
		}
		return check.Lint(os.Stdout, o)
	}
	r, err := resolve.Load(c.Config, resolve.Options{Policies: policies, HAProxyVersion: c.Version})
	if err != nil {
		return err
	}
	return check.Run(os.Stdout, r, o)
}
