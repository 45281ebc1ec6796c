// Package decidertest drives the pools of package decider in tests: a clock that
// the test moves, a pool of replicas, and helpers that send requests, serve them
// and hold them in flight. It uses the public API of decider only, as proxies do,
// so that policies of any package can be tested with it.
//
// A Pool belongs to one test and one goroutine.
package decidertest
