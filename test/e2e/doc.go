// Package e2e tests pointsman as its users run it: the built binary as a process,
// configurations that the binary itself renders, and real proxies in front of fake
// engines. One suite runs on every release of HAProxy and nginx at hand: a
// subtest is named by its proxy and version, and what one proxy cannot do is one
// of its named abilities.
//
// The tests build the binary anew, which Go's test cache does not see: run them
// with -count=1. POINTSMAN_SOAK=1 makes the runs long, POINTSMAN_RACE=1 builds
// the binary with the race detector, and POINTSMAN_COVERDIR=DIR collects the
// coverage of its processes in a folder, which is an absolute path.
package e2e
