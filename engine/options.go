package engine

import "pointsman/engine/metrics"

// PoolOptions describe the engines of a pool.
type PoolOptions struct {
	Kind metrics.Kind // metrics.Unknown = detected
	// Metrics is where their metrics are, such as "/metrics" or ":8002/metrics"; "off"
	// = they are not scraped, "" = the usual paths of the kind.
	Metrics string
	Events  EventOptions
	// Replicas are the options of replicas that have their own, by name.
	Replicas map[string]EventOptions
	// Ranks are the replicas that are one rank of their engine, by name.
	Ranks map[string]metrics.Rank
}

// events returns the options of a replica.
func (o PoolOptions) events(replica string) EventOptions {
	if own, ok := o.Replicas[replica]; ok {
		return own
	}
	return o.Events
}

// EventOptions say where engines publish their KV-cache events: at ports of their
// own, or to an address of ours.
type EventOptions struct {
	Port   int    // of the first rank; those of the other ranks follow; 0 = none
	Replay int    // port of the first rank's replay socket; 0 = none
	Ranks  int    // of data parallelism behind one address; 0 = 1
	Bind   string // host:port that engines connect to; "" = none
}
