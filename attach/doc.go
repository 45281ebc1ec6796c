// Package attach edits the configuration of a proxy that runs already: lines
// that are marked as ours go in, lines that they replace stay as comments, and
// Strip takes all of it out again to the byte. The packages below it know where
// the lines of each proxy go.
package attach
