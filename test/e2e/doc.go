// Package e2e tests pointsman as its users run it: the built binary as a process,
// configurations that the binary itself renders, and real proxies in front of fake
// engines. One suite runs on every release of HAProxy and nginx at hand: a
// subtest is named by its proxy and version, and what one proxy cannot do is one
// of its named abilities. What the tests run in is package rig.
package e2e
