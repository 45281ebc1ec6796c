// Package wire is the form in which agents send each other what they know: sealed
// messages, and batches of events in a compact binary form.
package wire
