// Package sim models LLM engines. Engine is a deterministic model of one
// engine in virtual time, without I/O, fit for a simulator that drives dozens
// of them; Server wraps an Engine in real time behind vLLM's HTTP API, as a
// replica for tests and demonstrations.
package sim
