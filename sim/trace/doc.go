// Package trace reads the workloads that a simulation replays: traces in the
// form of the Mooncake project, and recorded requests with their text.
package trace
