package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"pointsman/demo"
	"pointsman/misuse"
	"pointsman/sim/replay"
)

type demoCmd struct {
	Proxy       []string `default:"haproxy" enum:"haproxy,nginx" help:"The proxy: haproxy or nginx; with several agents also both, haproxy,nginx, in turn (${default})."`
	HAProxy     string   `name:"haproxy" default:"haproxy" help:"Command that runs HAProxy, with its arguments separated by spaces (${default})."`
	Nginx       string   `name:"nginx" default:"nginx" help:"Command that runs nginx, likewise (${default})."`
	Scenario    string   `default:"mixed" enum:"mixed,agents,priorities" help:"mixed: conversations. agents: coding agents with sub-agents, by three APIs. priorities: chat and batch together, without and with bands (${default})."`
	Policy      []string `default:"${default_policy}" sep:"none" help:"Routing policies, separated by commas, each tried on a fresh stage; with options as name:option=value (${default})."`
	Requests    int      `default:"1500" help:"Requests to send (${default})."`
	Replicas    int      `default:"4" help:"Fake replicas to start (${default})."`
	Agents      int      `default:"1" help:"Agents that share what they know, each with a proxy of its own; requests go to them in turn (${default})."`
	Proxies     int      `default:"1" help:"Proxies, if there are to be more than agents; they ask the agents in turn (${default})."`
	NATS        string   `name:"nats" placeholder:"URL" help:"NATS server by which several agents share, in place of one inside each: nats://host:4222."`
	Load        float64  `default:"0.8" help:"Rate, in multiples of what round robin can bear (${default})."`
	Speed       float64  `default:"4" help:"How many times faster than a 70B model the fake replicas are (${default})."`
	CacheTokens int      `default:"40000" help:"KV cache of each replica in tokens (${default})."`
	Seed        uint64   `default:"1" help:"Seed of the workload (${default})."`
	JSON        bool     `help:"Print the result as JSON, an object for each policy; progress goes to standard error."`
}

func (c *demoCmd) Run() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return demo.Run(ctx, o)
}

func (c *demoCmd) options() (o demo.Options, err error) {
	o = demo.Options{
		Proxy: strings.Join(c.Proxy, ","), Scenario: c.Scenario,
		Requests: c.Requests, Replicas: c.Replicas, Agents: c.Agents, Proxies: c.Proxies, NATS: c.NATS, Load: c.Load, Speed: c.Speed, CacheTokens: c.CacheTokens, Seed: c.Seed, JSON: c.JSON,
	}
	commands := map[string]string{demo.HAProxy: c.HAProxy, demo.Nginx: c.Nginx}
	for _, name := range c.Proxy {
		o.Commands = append(o.Commands, strings.Fields(commands[name]))
	}
	if o.Self, err = os.Executable(); err != nil {
		return o, err
	}
	if o.Policies, err = replay.ParsePolicies(policies, c.Policy); err != nil {
		return o, misuse.Of(err)
	}
	return o, nil
}
