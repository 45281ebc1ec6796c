// Package engine watches the inference engines of all pools: it starts and stops
// what scrapes their metrics (package metrics) and follows their KV-cache events
// (package kvevents) as replicas come and go. A decision needs none of it: what an
// engine does not report is predicted.
package engine
