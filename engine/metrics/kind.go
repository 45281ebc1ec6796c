// Package metrics scrapes the metrics of inference engines and reports them to the
// decider: requests, first tokens, the size and the hits of the KV cache, LoRA
// adapters. An engine that answers slowly is scraped less often, and never twice at
// once.
package metrics

import "slices"

// Kind is a family of engines that name their metrics alike.
type Kind uint8

// The kinds, in the order of KindNames.
const (
	Unknown Kind = iota
	VLLM
	SGLang
	TensorRT // trtllm-serve
	Triton   // Triton with the TensorRT-LLM backend
	LlamaCpp
)

var kindNames = [...]string{"", "vllm", "sglang", "trtllm", "triton", "llamacpp"}

// KindNames are the names of the kinds in the configuration, without that of
// Unknown.
func KindNames() []string { return slices.Clone(kindNames[1:]) }

// String returns the kind's name in the configuration, "" for Unknown.
func (k Kind) String() string { return kindNames[k] }

// KindOf returns the kind of that name, or Unknown.
func KindOf(name string) Kind {
	for k, n := range kindNames {
		if n == name {
			return Kind(k)
		}
	}
	return Unknown
}

// paths returns where engines of the kind serve their metrics, the likeliest first:
// a path on the port that serves requests, or a port and a path.
func (k Kind) paths() []string {
	switch k {
	case Unknown:
		return []string{"/metrics", "/prometheus/metrics"}
	case TensorRT:
		return []string{"/prometheus/metrics"}
	case Triton:
		return []string{":8002/metrics"}
	}
	return []string{"/metrics"}
}

// Options describe an engine.
type Options struct {
	Kind Kind // Unknown = detected
	// Path is where its metrics are, such as "/metrics" or ":8002/metrics"; "" = the
	// usual paths of the kind.
	Path string
	Rank Rank
}

// Rank is one of the copies of the model inside an engine, whose page of metrics has
// all of them. The zero value is an engine with one.
type Rank struct {
	Number int
	Of     int // how many there are
}

// configured reports whether the kind or the path is configured.
func (o Options) configured() bool { return o.Kind != Unknown || o.Path != "" }

// paths returns the paths to try.
func (o Options) paths() []string {
	if o.Path != "" {
		return []string{o.Path}
	}
	return o.Kind.paths()
}
