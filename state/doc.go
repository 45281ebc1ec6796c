// Package state keeps the agent's memory over a restart: it writes the memory of the pools
// to a file, every half minute and at the end, and reads it in the agent's next life. No
// part of the agent waits for the disk: a file that cannot be read is ignored, and one that
// cannot be written is logged once.
package state
