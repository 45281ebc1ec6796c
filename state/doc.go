// Package state keeps the agent's memory over a restart: it writes what the pools
// have learned and hold to a file, every half minute and at the end, and reads it
// in the agent's next life. Nothing of the agent waits for the disk: a file that
// cannot be read is ignored, and one that cannot be written is logged once.
package state
