// Command workloads writes a synthetic trace for `pointsman simulate`, so that
// policies are not judged by the recorded traces alone.
//
//	go run ./bench/workloads chats|agents|documents [seed] > trace.jsonl
//
// The default seed is 1. Equal seeds give equal traces.
package main

import (
	"log"
	"os"
	"strconv"

	"pointsman/sim/trace"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: workloads chats|agents|documents [seed]")
	}
	seed := uint64(1)
	if len(os.Args) == 3 {
		var err error
		if seed, err = strconv.ParseUint(os.Args[2], 10, 64); err != nil {
			log.Fatalf("seed: %q, want a whole number, 0 or more", os.Args[2])
		}
	}
	if err := trace.WriteSynthetic(os.Stdout, os.Args[1], seed); err != nil {
		log.Fatal(err)
	}
}
