// Package engine watches the inference engines of all pools: it starts and stops what
// scrapes their metrics (package metrics) and follows their KV-cache events (package
// kvevents) as replicas come and go. No decision depends on it: the decider predicts what
// an engine does not report.
package engine
