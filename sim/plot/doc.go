// Package plot draws the results of replays.
package plot
