// Package plot draws the results of replays as SVG and PNG.
package plot
