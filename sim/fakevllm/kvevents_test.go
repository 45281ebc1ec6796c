package fakevllm

import (
	"fmt"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// decodeBatch returns a batch as generic values.
func decodeBatch(t *testing.T, payload []byte) any {
	t.Helper()
	v, rest, err := msgp.ReadIntfBytes(payload)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	return v
}

func TestKVEventsAsArrays(t *testing.T) {
	e := NewKVEvents(KVEventsOptions{BlockSize: 2, Rank: 3})
	if _, _, ok := e.Batch(1); ok {
		t.Error("an empty batch")
	}
	e.Stored(10, 0, true, []uint32{1, 2}, "", "")
	e.Stored(11, 10, false, []uint32{3, 4}, "", "")  // the same run
	e.Stored(20, 0, true, []uint32{5, 6}, "sql", "") // another one
	e.Removed(10)
	e.Stored(30, 0, true, []uint32{7, 8}, "sql", "salt")
	e.Stored(31, 30, false, []uint32{9, 9}, "sql", "salt")
	e.Cleared()
	e.Stored(40, 0, true, []uint32{7, 8}, "", "salt")
	e.Stored(41, 40, false, []uint32{7, 8}, "", "salt")
	number, payload, ok := e.Batch(1.5)
	if number != 0 || !ok {
		t.Fatalf("batch %d %v", number, ok)
	}
	const want = `[1.5 [` +
		`[BlockStored [10 11] <nil> [1 2 3 4] 2 <nil> GPU <nil> <nil> 0] ` +
		`[BlockStored [20] <nil> [5 6] 2 <nil> GPU sql [[sql]] 0] ` +
		`[BlockRemoved [10] GPU <nil>] ` +
		`[BlockStored [30 31] <nil> [7 8 9 9] 2 <nil> GPU sql [[sql salt] [sql]] 0] ` +
		`[AllBlocksCleared] ` +
		`[BlockStored [40 41] <nil> [7 8 7 8] 2 <nil> GPU <nil> [[salt] <nil>] 0]` +
		`] 3]`
	if got := fmt.Sprint(decodeBatch(t, payload)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	e.Stored(12, 11, false, []uint32{1, 1}, "", "")
	number, payload, ok = e.Batch(2)
	if got := fmt.Sprint(decodeBatch(t, payload)); number != 1 || !ok || got != "[2 [[BlockStored [12] 11 [1 1] 2 <nil> GPU <nil> <nil> 0]] 3]" {
		t.Errorf("batch %d: %s", number, got)
	}
}

func TestKVEventsAsMaps(t *testing.T) {
	e := NewKVEvents(KVEventsOptions{BlockSize: 1, Maps: true, ByteHashes: true})
	e.Stored(258, 0, true, []uint32{1}, "", "")
	e.Removed(258)
	_, payload, _ := e.Batch(1)
	batch := decodeBatch(t, payload).(map[string]any)
	events := batch["events"].([]any)
	if batch["ts"] != 1.0 || fmt.Sprint(batch["data_parallel_rank"]) != "0" || len(events) != 2 {
		t.Fatalf("batch %v", batch)
	}
	stored, removed := events[0].(map[string]any), events[1].(map[string]any)
	if stored["type"] != "BlockStored" || len(stored) != 11 || fmt.Sprint(stored["token_ids"]) != "[1]" || stored["parent_block_hash"] != nil {
		t.Errorf("stored %v", stored)
	}
	hash := stored["block_hashes"].([]any)[0].([]byte)
	if len(hash) != 32 || hash[6] != 1 || hash[7] != 2 {
		t.Errorf("hash %x", hash)
	}
	if removed["type"] != "BlockRemoved" || len(removed) != 4 || fmt.Sprint(removed["block_hashes"]) != fmt.Sprint(stored["block_hashes"]) {
		t.Errorf("removed %v", removed)
	}
}

// TestKVEventsReplay: only the last batches are kept, and replayed in order.
func TestKVEventsReplay(t *testing.T) {
	e := NewKVEvents(KVEventsOptions{BlockSize: 1, Keep: 3})
	for i := range 5 {
		e.Removed(uint64(i))
		e.Batch(float64(i))
	}
	for from, want := range map[uint64]string{0: "[2 3 4]", 3: "[3 4]", 5: "[]", 1 << 63: "[]"} {
		numbers := []uint64{}
		e.Replay(from, func(n uint64, payload []byte) {
			if got := decodeBatch(t, payload).([]any)[0]; got != float64(n) {
				t.Errorf("batch %d has time %v", n, got)
			}
			numbers = append(numbers, n)
		})
		if got := fmt.Sprint(numbers); got != want {
			t.Errorf("from %d: %s, want %s", from, got, want)
		}
	}
}
