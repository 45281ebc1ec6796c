// Package workload generates the synthetic traces that simulate offers by name,
// for users without a trace of their own.
package workload
