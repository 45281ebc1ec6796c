// Package rig is what tests of the whole run in: an agent as a process of its own,
// built from this source, with the configuration that it renders itself in a real
// proxy, in front of fake engines. A Site is one such installation; Releases lists
// the proxies at hand, each with its abilities.
//
// The tests build the binary anew, which Go's test cache does not see: run them
// with -count=1. POINTSMAN_SOAK=1 makes the runs long, POINTSMAN_RACE=1 builds
// the binary with the race detector, and POINTSMAN_COVERDIR=DIR collects the
// coverage of its processes in a folder, which is an absolute path.
package rig
