// Package trace reads the workloads that a simulation replays.
package trace
