package main

import (
	"context"

	"pointsman/agent"
)

const defaultConfig = "/etc/pointsman/pointsman.yaml"

type serveCmd struct {
	Config    string `short:"c" default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
	LogFormat string `default:"text" enum:"text,json" help:"text or json."`
}

// Help says what systemd goes by.
func (*serveCmd) Help() string {
	return "Exit codes: 0 after SIGTERM or SIGINT, 78 for a configuration that is refused, 1 for what another start may mend, such as an address in use, 2 wrong use. SIGHUP reads the configuration again; one that is refused is logged, and the old one stays."
}

func (c *serveCmd) Run() error {
	a, err := agent.New(agent.Options{Config: c.Config, Version: version, Policies: policies, Log: agent.NewLogger(c.LogLevel, c.LogFormat == "json")})
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}
