// Package sim models an LLM engine with continuous batching and a prefix cache.
// Engine runs in virtual time, without I/O, and is deterministic, so that a
// simulation can drive dozens of engines.
package sim
