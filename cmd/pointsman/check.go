package main

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"os"

	"pointsman/admin/client"
	"pointsman/check"
	"pointsman/misuse"
	"pointsman/resolve"
)

type checkCmd struct {
	Config        string   `short:"c" default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Version       string   `help:"HAProxy's version, such as 2.6 or 3.2; by default that of the configuration, else of the installed binary."`
	HAProxyConfig []string `name:"haproxy-config" sep:"none" type:"path" help:"Your own haproxy.cfg, or its folder; again for each further -f: reports what keeps pointsman from being asked, and what hurts LLM traffic, and checks it together with the rendered files."`
	NginxConfig   string   `name:"nginx-config" type:"path" help:"Your own nginx.conf, likewise, with the rendered files installed."`
	Backend       []string `help:"A backend or upstream of engines, for the warnings; by default those that look like it."`
	Lint          bool     `help:"Only warn of what hurts LLM traffic in your own configuration; needs no pointsman."`
	Live          string   `placeholder:"URL" help:"Send one small request to this URL through the proxy, such as https://host/v1/chat/completions, and report whether the running agent was asked, decided, and got a report of the outcome."`
	Admin         string   `default:"${default_admin}" help:"For --live: admin address of the agent (${default})."`
	Model         string   `help:"For --live: the model to ask for; by default the first that a pool lists, or that an engine behind the proxy serves."`
	Header        []string `sep:"none" help:"For --live: a header, such as 'Authorization: Bearer …'."`
	Insecure      bool     `help:"For --live: take any certificate."`
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
	if c.Live != "" {
		return c.live()
	}
	if c.Lint {
		if len(o.HAProxyConfig) == 0 && o.NginxConfig == "" {
			return misuse.Errorf("--lint needs --haproxy-config or --nginx-config")
		}
		return check.Lint(os.Stdout, o)
	}
	r, err := resolve.Load(c.Config, resolve.Options{Policies: policies, HAProxyVersion: c.Version})
	if err != nil {
		return err
	}
	return check.Run(os.Stdout, r, o)
}

func (c *checkCmd) live() error {
	u, err := url.Parse(c.Live)
	if err != nil || !client.IsHost(u) || u.Scheme != "http" && u.Scheme != "https" {
		return misuse.Errorf("--live %q: want a URL such as https://host/v1/chat/completions", c.Live)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/chat/completions"
	}
	o := check.LiveOptions{URL: u.String(), Admin: c.Admin, Model: c.Model, Headers: c.Header, JSON: c.JSON}
	if c.Insecure {
		o.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	}
	return check.RunLive(os.Stdout, o)
}
