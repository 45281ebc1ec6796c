package fakevllm

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"pointsman/sim"
)

// Options configure a Server. Zero values mean the defaults.
type Options struct {
	// Name appears in X-Engine and at the beginning of every answer.
	Name string
	// Models are the names of the model; the first is the canonical one. The
	// default is "fake".
	Models []string
	// LoRA are the names of the adapters served.
	LoRA []string
	// MaxLoRA is the number of adapters that can be loaded, by default all.
	MaxLoRA int
	// Ranks is the number of engines inside the server, of data parallelism; 0 means 1.
	// The ports of their events follow one another. RankHeader says which one serves a
	// request; without it the least loaded one does.
	Ranks int
	// Sidecar puts a sidecar such as llm-d's before the server: it sends the prompts of
	// requests with a PrefillHeader to the replica named there.
	Sidecar bool
	// LlamaCpp makes the server answer like llama.cpp, where that differs from vLLM.
	LlamaCpp bool
	// Profile is the engine's speed, by default Profile8B.
	Profile sim.Profile
	// BlockSize is the number of tokens per block of KV cache, by default 16.
	BlockSize int
	// CacheTokens is the size of the KV cache in tokens, by default 500,000.
	CacheTokens int
	// CPUCacheTokens is how many evicted tokens the memory of the host keeps, by default
	// none, and TransferSpeed how many are copied back per second, by default
	// sim.DefaultTransferSpeed. Events report these blocks as vLLM's offloading does.
	CPUCacheTokens int
	TransferSpeed  float64
	// MaxModelLen is the largest number of prompt and output tokens of a
	// request, by default 131,072 or the whole cache.
	MaxModelLen int
	// Events is the ZeroMQ endpoint that publishes KV-cache events, such as
	// "tcp://127.0.0.1:5557", and Replay the one that replays past events.
	// Empty means none.
	Events, Replay string
	// EventForm chooses the encoding of the events; its BlockSize is ignored.
	EventForm KVEventsOptions
	// LoseBatch, if set, decides whether the event batch with that number is
	// lost, and LoseReplay whether a replay fails.
	LoseBatch  func(number uint64) bool
	LoseReplay func() bool
	// Speed is the engine's speed as a multiple of its profile's: 1 is real
	// time; 0 does not wait at all.
	Speed float64
}

// maxRanks bounds the engines inside one server.
const maxRanks = 1024

// Validate returns an error that says why the options are unusable. New panics for some of
// them.
func (o Options) Validate() error {
	if !(o.Speed >= 0) || math.IsInf(o.Speed, 0) {
		return fmt.Errorf("a speed of %v, want 0 or more", o.Speed)
	}
	if o.Ranks < 0 || o.Ranks > maxRanks {
		return fmt.Errorf("%d ranks, want 1 to %d", o.Ranks, maxRanks)
	}
	for _, endpoint := range []string{o.Events, o.Replay} {
		if endpoint == "" {
			continue
		}
		if err := CheckAddress(hostPort(endpoint)); err != nil {
			return fmt.Errorf("ZeroMQ endpoint %q: want the like of tcp://127.0.0.1:5557", endpoint)
		}
	}
	_, err := sim.NewEngine(o.withDefaults().engineOptions())
	return err
}

// CheckAddress reports an address that is not host:port, whatever the machine's names and
// ports. The host may be empty, and port 0 is any that is free.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("address %q: want host:port, such as 127.0.0.1:8000", address)
	}
	return nil
}

// hostPort is the address of a ZeroMQ endpoint, such as :5557 of tcp://*:5557.
func hostPort(endpoint string) string {
	return strings.Replace(strings.TrimPrefix(endpoint, "tcp://"), "*", "", 1)
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "fake"
	}
	if len(o.Models) == 0 {
		o.Models = []string{"fake"}
	}
	o.Ranks = max(o.Ranks, 1)
	if o.MaxLoRA == 0 {
		o.MaxLoRA = max(1, len(o.LoRA))
	}
	if o.Profile == (sim.Profile{}) {
		o.Profile = sim.Profile8B
	}
	if o.BlockSize == 0 {
		o.BlockSize = 16
	}
	if o.CacheTokens == 0 {
		o.CacheTokens = 500_000
	}
	if o.MaxModelLen == 0 {
		o.MaxModelLen = 131_072
	}
	if o.BlockSize > 0 {
		o.MaxModelLen = min(o.MaxModelLen, o.CacheTokens/o.BlockSize*o.BlockSize)
	}
	return o
}

func (o Options) engineOptions() sim.EngineOptions {
	return sim.EngineOptions{Profile: o.Profile, BlockSize: o.BlockSize, CacheTokens: o.CacheTokens, EachToken: true,
		CPUCacheTokens: o.CPUCacheTokens, TransferSpeed: o.TransferSpeed}
}
