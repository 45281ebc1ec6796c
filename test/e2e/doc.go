// Package e2e tests pointsman as its users run it: the built binary as a
// process, configurations that the binary itself renders, and real HAProxies in
// front of fake engines.
//
// The tests build the binary anew, which Go's test cache does not see: run them
// with -count=1. POINTSMAN_SOAK=1 makes the runs long, POINTSMAN_RACE=1 builds
// the binary with the race detector.
package e2e
