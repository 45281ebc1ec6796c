// Package replay runs a trace of requests through policies: a discrete-event
// simulation of replicas, the proxy in front of them and the agents that decide.
package replay
