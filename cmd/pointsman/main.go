// Command pointsman decides for HAProxy and nginx which replica of an LLM a
// request goes to. It is the agent and the tools around it in one binary.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"pointsman/config"
	"pointsman/resolve"
	"pointsman/sim/workload"
)

type cli struct {
	Serve    serveCmd    `cmd:"" help:"Run the agent."`
	Check    checkCmd    `cmd:"" help:"Check the configuration, and with the proxy's own checker what is rendered from it."`
	Render   renderCmd   `cmd:"" help:"Print what to install or paste: haproxy, nginx, systemd."`
	Attach   attachCmd   `cmd:"" help:"Attach to a proxy that runs already: edits its configuration."`
	Detach   detachCmd   `cmd:"" help:"Undo attach, to the byte."`
	Explain  explainCmd  `cmd:"" help:"Ask a running agent why a body would go where."`
	Status   statusCmd   `cmd:"" help:"Show the pools and replicas of a running agent."`
	Engine   engineCmd   `cmd:"" help:"Run a fake vLLM: OpenAI's API, metrics, prefix cache and timing."`
	Demo     demoCmd     `cmd:"" help:"Start fake replicas, a real proxy and the agent, send a mixed workload, report what happened."`
	Simulate simulateCmd `cmd:"" help:"Replay a trace through policies and compare the results."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// options of the parser, with the defaults that the commands share.
var options = []kong.Option{
	kong.Name("pointsman"),
	kong.Description("The route-decision agent for LLM serving behind HAProxy or nginx."),
	kong.Vars{
		"default_admin": config.DefaultAdmin, "default_config": defaultConfig, "default_policy": config.DefaultPolicy,
		"workloads": strings.Join(workload.Names(), ", "),
		"spoe_conf": resolve.SPOEConf, "nginx_dir": resolve.NginxDir,
	},
	kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	kong.UsageOnError(),
}

func main() {
	ctx := kong.Parse(&cli{}, options...)
	if err := ctx.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "pointsman:", err)
		os.Exit(1)
	}
}
