package kvevents

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"pointsman/decider"
	"pointsman/sim/fakevllm"
)

func FuzzReadBatch(f *testing.F) {
	for _, form := range []fakevllm.KVEventsOptions{{BlockSize: 2}, {BlockSize: 2, Maps: true}, {BlockSize: 2, ByteHashes: true}} {
		e := fakevllm.NewKVEvents(form)
		e.Stored(1, 0, true, []uint32{1, 2}, "sql", "tenant")
		e.Stored(2, 1, false, []uint32{3, 4}, "sql", "tenant")
		e.Removed(1)
		e.Cleared()
		_, p, _ := e.Batch(1)
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var e event
		n := 0
		_ = readBatch(payload, &e, func(e *event) {
			n++
			for _, x := range e.extra {
				splitExtraKeys(x, e.lora)
			}
			if len(e.hashes) > len(payload) || len(e.tokens) > len(payload) {
				t.Fatal("an event is larger than its batch")
			}
		})
		if n > len(payload) {
			t.Fatal("more events than bytes")
		}
	})
}

// BenchmarkBlockEvents applies the batches of a busy replica: each stores four blocks
// and removes four, in a cache of 60,000.
func BenchmarkBlockEvents(b *testing.B) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: kvAware(16), Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	m := &Index{pool: d.Pool("llama"), replica: "r0", blockTokens: 16}
	rank := m.newRank("")
	m.startFollowing()
	e := fakevllm.NewKVEvents(fakevllm.KVEventsOptions{BlockSize: 16, Keep: 1})
	var payloads [][]byte
	tokens := make([]uint32, 16)
	const cache = 60_000
	for i := range uint64(2 * cache / 4) {
		for k := range uint64(4) {
			key := 1 + i*4 + k
			tokens[0], tokens[1] = uint32(key), uint32(key>>32)
			e.Stored(key, key-1, k == 0, tokens, "", "")
		}
		if i >= cache/4 {
			for k := range uint64(4) {
				e.Removed(1 + (i-cache/4)*4 + k)
			}
		}
		_, p, _ := e.Batch(0)
		payloads = append(payloads, append([]byte(nil), p...))
	}
	for i, p := range payloads {
		if err := rank.applyLive(uint64(i), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	i := cache / 4
	for b.Loop() {
		if err := rank.applyLive(uint64(i), payloads[i]); err != nil {
			b.Fatal(err)
		}
		if i++; i == len(payloads) {
			i = cache / 4
		}
	}
	b.ReportMetric(5/(b.Elapsed().Seconds()/float64(b.N)), "events/s")
	b.ReportMetric(float64(len(rank.table.slots))*float64(unsafe.Sizeof(slot{}))/float64(rank.table.liveBlocks), "table-B/block")
	if rank.table.liveBlocks < cache/2 {
		b.Fatal(fmt.Sprint("the cache holds only ", rank.table.liveBlocks))
	}
}
