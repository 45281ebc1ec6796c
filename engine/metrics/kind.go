// Package metrics scrapes the metrics of inference engines, each as often as it
// bears, and reports them to the decider: requests, first tokens, the size and
// hits of the KV cache, LoRA adapters.
package metrics

import "slices"

// Kind is a family of engines with the same names for the same metrics.
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

// String is the kind's name in the configuration; "" is Unknown.
func (k Kind) String() string { return kindNames[k] }

// KindOf is the kind of that name, or Unknown.
func KindOf(name string) Kind {
	for k, n := range kindNames {
		if n == name {
			return Kind(k)
		}
	}
	return Unknown
}

// paths are where engines of the kind show their metrics, the likeliest first:
// a path on the port that serves requests, or with a port of its own.
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

// Options say what an engine is.
type Options struct {
	Kind Kind // Unknown: found out
	// Path is where its metrics are, as "/metrics" or ":8002/metrics"; "" is where
	// engines of the kind have them.
	Path string
}

// told reports whether something is known of the engine beforehand.
func (o Options) told() bool { return o.Kind != Unknown || o.Path != "" }

func (o Options) paths() []string {
	if o.Path != "" {
		return []string{o.Path}
	}
	return o.Kind.paths()
}
