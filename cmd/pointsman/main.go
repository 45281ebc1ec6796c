// Command pointsman decides for HAProxy and nginx which replica of an LLM a
// request goes to. It is the agent and the tools around it in one binary.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"pointsman/agent"
	"pointsman/config"
	"pointsman/misuse"
	_ "pointsman/quiet" // sets the log's output; main sets it again
	"pointsman/resolve"
	"pointsman/sim/workload"
)

type cli struct {
	Serve    serveCmd    `cmd:"" help:"Run the agent."`
	Check    checkCmd    `cmd:"" help:"Check the configuration, and with the proxy's own checker what is rendered from it."`
	Config   configCmd   `cmd:"" help:"Print the configuration in force, with all defaults."`
	Render   renderCmd   `cmd:"" help:"Print what to install or paste: haproxy, nginx, systemd."`
	Attach   attachCmd   `cmd:"" help:"Attach to a proxy that runs already: edits its configuration."`
	Detach   detachCmd   `cmd:"" help:"Undo attach, to the byte."`
	Explain  explainCmd  `cmd:"" help:"Ask a running agent to which replica a request would go, and why."`
	Status   statusCmd   `cmd:"" help:"Show the pools and replicas of a running agent."`
	Usage    usageCmd    `cmd:"" help:"Print as CSV how many tokens each API key has used since the agent's start."`
	Engine   engineCmd   `cmd:"" help:"Run a fake vLLM: OpenAI's API, metrics, prefix cache and timing."`
	Demo     demoCmd     `cmd:"" help:"Start fake replicas, a real proxy and the agent, send a mixed workload, report what happened."`
	Record   recordCmd   `cmd:"" help:"Record the traffic of a running agent for simulate, without text or ids."`
	Simulate simulateCmd `cmd:"" help:"Replay a trace through policies and compare the results."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	Completion completionCmd `cmd:"" help:"Print the completions of a shell: bash, zsh or fish."`
	Man        manCmd        `cmd:"" hidden:"" help:"Write the man pages into a folder."`
	Reference  referenceCmd  `cmd:"" hidden:"" help:"Write the reference into a folder, in Markdown."`
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
}

// Exit codes. exitRefused is that of "serve" for a configuration that it refuses, which
// systemd does not start again (RestartPreventExitStatus= in the unit): EX_CONFIG of
// sysexits.h.
const (
	exitFault   = 1
	exitUsage   = 2
	exitRefused = 78
)

func main() {
	log.SetOutput(os.Stderr)
	parser := kong.Must(&cli{}, options...)
	ctx, err := parser.Parse(arguments(os.Args[1:]))
	if err == nil {
		err = ctx.Run()
	} else {
		err = misuse.Of(err)
	}
	os.Exit(exit(os.Stderr, err, ctx))
}

// arguments takes --version alone as the command of that name: commands have a
// flag so called that means another version.
func arguments(args []string) []string {
	if len(args) == 1 && args[0] == "--version" {
		return []string{"version"}
	}
	return args
}

// noValue matches what the parser says of a flag at the end of the line.
var noValue = regexp.MustCompile(`(--[\w-]+): expected \w+ value but got "EOL" \(<EOL>\)`)

// exit prints an error and returns the exit code. For an error in how a command is
// called, a second line names that command: the one of ctx, or of the parser's error.
func exit(w io.Writer, err error, ctx *kong.Context) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(w, "pointsman:", noValue.ReplaceAllString(err.Error(), "$1 needs a value"))
	if _, refused := errors.AsType[agent.Refused](err); refused {
		return exitRefused
	}
	if !misuse.Is(err) {
		return exitFault
	}
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		ctx = parse.Context
	}
	command := "pointsman"
	if ctx != nil && ctx.Selected() != nil {
		command = ctx.Selected().FullPath()
	}
	fmt.Fprintf(w, "Run \"%s --help\" for its flags.\n", command)
	return exitUsage
}
