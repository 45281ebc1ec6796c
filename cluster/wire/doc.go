// Package wire is the format of messages between agents: sealed messages, and batches of
// events in a compact binary encoding.
package wire
