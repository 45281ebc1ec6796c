// Package engine listens to the inference engines themselves and tells the
// decider what it hears: it scrapes their metrics. Nothing here is needed for
// a decision, and nothing here can hold one up.
package engine
