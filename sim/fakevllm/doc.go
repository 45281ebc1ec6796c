// Package fakevllm is a replica for tests and demonstrations: it serves vLLM's
// HTTP API, metrics and KV-cache events in real time, with a sim.Engine in
// place of the model.
package fakevllm
