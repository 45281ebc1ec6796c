// Package kvcache models what each replica's KV cache holds, so that a router knows how
// much of a prompt each replica has. Prompts are lists of block keys, each a hash of the
// block and of all blocks before it.
//
// A Cache replays the bookkeeping of an engine's prefix cache (reference counts and least
// recently used eviction), from the requests sent to it. If the engine publishes KV-cache
// events, the Cache holds what those report instead. The package does no I/O and reads no
// clock. Nothing in it is safe for concurrent use: its owner's lock guards it.
package kvcache
