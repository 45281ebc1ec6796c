// Package attach edits the configuration of a proxy that is already running. It adds lines
// that are marked as ours and keeps lines that they replace as comments; Strip removes all
// of it again, to the byte. The packages below it know where the lines of each proxy go.
package attach
