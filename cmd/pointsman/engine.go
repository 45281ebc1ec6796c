package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"pointsman/misuse"
	"pointsman/sim"
	"pointsman/sim/fakevllm"
)

type engineCmd struct {
	Listen           string   `default:"127.0.0.1:8000" help:"Address to serve on (${default})."`
	Name             string   `default:"engine" help:"Name in X-Engine and in each answer."`
	Model            []string `default:"fake" help:"Models served."`
	LoRA             []string `name:"lora" help:"LoRA adapters served."`
	Kind             string   `default:"vllm" enum:"vllm,llamacpp" help:"Engine whose API it has: vllm or llamacpp."`
	Profile          string   `default:"8b" enum:"8b,70b" help:"Timing: 8b or 70b."`
	Speed            float64  `default:"1" help:"Speed as a multiple of the profile's; 0 does not wait at all."`
	BlockSize        int      `default:"16" help:"Tokens per block of KV cache."`
	Events           string   `help:"ZeroMQ endpoint that publishes KV-cache events, such as tcp://127.0.0.1:5557."`
	Replay           string   `help:"ZeroMQ endpoint that replays past events, such as tcp://127.0.0.1:5558."`
	EventForm        string   `default:"arrays" enum:"arrays,maps,simulator,windowed" help:"Form of the events: arrays or maps, as older and newer versions of vLLM; simulator, whose batches count from 1 and whose first blocks have parent 0; windowed, with a second group of layers."`
	Ranks            int      `default:"1" help:"Engines inside the server, of data parallelism."`
	Sidecar          bool     `help:"Have the prompts of requests with x-prefiller-host-port computed by the engine named there, as llm-d's sidecar does."`
	CacheTokens      int      `default:"500000" help:"Size of the KV cache in tokens."`
	CPUCacheTokens   int      `name:"cpu-cache-tokens" help:"Tokens that the memory of the host keeps of what leaves the KV cache (none)."`
	CPUTransferSpeed float64  `name:"cpu-transfer-speed" default:"100000" help:"Tokens copied back from it a second (${default})."`
}

func (c *engineCmd) Run() error {
	profile, err := sim.ProfileByName(c.Profile)
	if err != nil {
		return err
	}
	options := fakevllm.Options{
		LlamaCpp: c.Kind == "llamacpp", Ranks: c.Ranks, Sidecar: c.Sidecar,
		Name: c.Name, Models: c.Model, LoRA: c.LoRA, Profile: profile,
		BlockSize: c.BlockSize, CacheTokens: c.CacheTokens, Speed: c.Speed,
		CPUCacheTokens: c.CPUCacheTokens, TransferSpeed: c.CPUTransferSpeed,
		Events: c.Events, Replay: c.Replay,
		EventForm: map[string]fakevllm.KVEventsOptions{
			"maps": {Maps: true, ByteHashes: true}, "simulator": {ZeroParent: true, From1: true}, "windowed": {Maps: true, Windowed: true},
		}[c.EventForm],
	}
	if err := options.Validate(); err != nil {
		return misuse.Of(err)
	}
	if err := fakevllm.CheckAddress(c.Listen); err != nil {
		return misuse.Of(err)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	fmt.Fprintf(os.Stderr, "fake engine %s serves %v on %s\n", c.Name, c.Model, l.Addr())
	return fakevllm.Serve(ctx, l, options)
}
