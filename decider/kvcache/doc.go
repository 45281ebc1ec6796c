// Package kvcache models what each replica's KV cache holds, so that a router
// can tell which replica has how much of a prompt. Prompts are lists of block
// keys, each a hash of the block and of all before it.
//
// A Cache replays the bookkeeping of an engine's prefix cache (reference counts
// and least recently used eviction), from what is known of the requests sent to
// it; or, where the engine publishes KV-cache events, it holds what those
// report. The package does no I/O and reads no clock. Nothing in it is safe for
// concurrent use: its owner's lock guards it.
package kvcache
