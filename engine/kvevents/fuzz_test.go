package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/kvcache"
	"pointsman/sim/fakevllm"
)

// errEnd ends a replay that has no more to say.
var errEnd = errors.New("the replay breaks off")

// FuzzBatches has an engine publish batches of any number and content, replay others
// when it is asked, and break off the connection. The index does not panic, and holds no
// more blocks than there were bytes.
func FuzzBatches(f *testing.F) {
	step := func(kind, number byte, payload []byte) []byte {
		return append(append([]byte{kind, number}, binary.BigEndian.AppendUint16(nil, uint16(len(payload)))...), payload...)
	}
	for _, form := range []fakevllm.KVEventsOptions{{BlockSize: testBlock}, {BlockSize: testBlock, Maps: true}, {BlockSize: testBlock, ByteHashes: true}} {
		e := fakevllm.NewKVEvents(form)
		var steps []byte
		for i := range byte(5) {
			e.Stored(uint64(i)+1, uint64(i), i == 0, []uint32{1, 2, 3, uint32(i)}, "", "")
			if i == 3 {
				e.Copied(fakevllm.MediumCPU, 1)
				e.Removed(2)
				e.StoredOn(fakevllm.MediumStorage, 9, 2, false, []uint32{1, 2, 3, 4, 5, 6, 7, 8}, "", "")
				e.RemovedFrom(fakevllm.MediumStorage, 9)
			}
			_, p, _ := e.Batch(1)
			steps = append(steps, step(i%3, i/2*2, p)...) // some are missing, some are replayed
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: kvAware(testBlock), Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
		index := &Index{pool: d.Pool("llama"), replica: "r0", blockTokens: testBlock}
		rest := data
		next := func() (kind byte, number uint64, payload []byte, ok bool) {
			if len(rest) < 4 {
				return 0, 0, nil, false
			}
			kind, number = rest[0], uint64(rest[1])
			if number == 255 {
				number = 1<<64 - 2
			}
			n := min(int(binary.BigEndian.Uint16(rest[2:])), len(rest)-4)
			payload, rest = rest[4:4+n], rest[4+n:]
			return kind, number, payload, true
		}
		s := &subscriber{rank: index.newRank(""), replay: "there is one", log: func(string, error) {}}
		s.replayer = func(context.Context) error {
			past := s.rank.newReplay()
			for {
				kind, number, payload, ok := next()
				switch {
				case !ok || kind%4 == 3:
					return errEnd
				case kind%4 == 2:
					return past.end()
				}
				if err := past.batch(number, payload); err != nil {
					return err
				}
			}
		}
		index.startFollowing()
		unsure := s.onConnect(t.Context())
		for {
			kind, number, payload, ok := next()
			if !ok {
				break
			}
			if kind%4 == 3 {
				unsure = s.onConnect(t.Context())
				continue
			}
			s.onBatch(t.Context(), number, payload, unsure)
			unsure = false
		}
		n := 0
		s.rank.table.keys(func(uint64, kvcache.Tier) { n++ })
		if n > len(data) || s.rank.table.used > len(data) || s.rank.bufferedBytes > maxBuffered {
			t.Fatalf("%d blocks, %d slots, %d bytes are buffered, of %d bytes", n, s.rank.table.used, s.rank.bufferedBytes, len(data))
		}
		index.stopFollowing()
	})
}
