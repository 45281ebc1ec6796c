package fakevllm

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// KVEventsOptions choose an encoding; versions of vLLM differ.
type KVEventsOptions struct {
	BlockSize  int  // tokens per block
	Maps       bool // encode events and batches as maps, not as arrays
	ByteHashes bool // 32-byte hashes, not integers
	Rank       int  // data-parallel rank
	Keep       int  // batches kept for a replay; 0 means 10,000
	ZeroParent bool // the first block of a prompt has parent 0, not nil
	From1      bool // the first batch has number 1
	// Windowed adds events of a group of layers with a sliding window, before those of
	// the group with whole prompts. All but the last blocks of a prompt leave the window.
	Windowed bool
}

// KVEvents encodes the events of one KV cache in batches as vLLM does: in
// MessagePack, with numbered batches, the last of which are kept. It is not safe
// for concurrent use.
type KVEvents struct {
	o      KVEventsOptions
	events []byte // of the current batch
	n      uint32
	run    blockRun
	next   uint64   // the number of the next batch
	kept   [][]byte // by number modulo its length
}

// blockRun is a sequence of stored blocks, each the child of the one before.
type blockRun struct {
	parent     uint64
	first      bool // there is no parent
	keys       []uint64
	tokens     []uint32
	lora, salt string
	medium     string
}

// The mediums of blocks.
const (
	MediumGPU     = "GPU"
	MediumCPU     = "CPU"
	MediumStorage = "STORAGE"
)

// NewKVEvents returns an empty KVEvents. Its first batch has number 0.
func NewKVEvents(o KVEventsOptions) *KVEvents {
	if o.Keep == 0 {
		o.Keep = 10_000
	}
	e := &KVEvents{o: o, kept: make([][]byte, o.Keep)}
	if o.From1 {
		e.next = 1
	}
	return e
}

// Stored adds a BlockStored event for the first block of a prompt, or for the
// child of parent. Consecutive blocks share one event.
func (e *KVEvents) Stored(key, parent uint64, first bool, tokens []uint32, lora, salt string) {
	e.StoredOn(MediumGPU, key, parent, first, tokens, lora, salt)
}

// StoredOn is Stored for a block on some medium.
func (e *KVEvents) StoredOn(medium string, key, parent uint64, first bool, tokens []uint32, lora, salt string) {
	r := &e.run
	if n := len(r.keys); n == 0 || first || r.keys[n-1] != parent || r.lora != lora || r.salt != salt || r.medium != medium {
		e.endRun()
		r.parent, r.first, r.lora, r.salt, r.medium = parent, first, lora, salt, medium
	}
	r.keys = append(r.keys, key)
	r.tokens = append(r.tokens, tokens...)
}

// Copied adds a BlockStored event for a block that was copied to some medium, as vLLM
// does where its connector does not describe the blocks: it has the hash only.
func (e *KVEvents) Copied(medium string, key uint64) {
	e.endRun()
	r := &e.run
	r.parent, r.first, r.lora, r.salt, r.medium = 0, true, "", "", medium
	r.keys = append(r.keys, key)
	e.endRun()
}

// Removed adds a BlockRemoved event.
func (e *KVEvents) Removed(key uint64) { e.RemovedFrom(MediumGPU, key) }

// RemovedFrom is Removed for a block on some medium.
func (e *KVEvents) RemovedFrom(medium string, key uint64) {
	e.endRun()
	e.removed(medium, key, e.group())
}

// group is the group of layers with whole prompts.
func (e *KVEvents) group() int {
	if e.o.Windowed {
		return 1
	}
	return 0
}

func (e *KVEvents) removed(medium string, key uint64, group int) {
	e.begin("BlockRemoved", 3, "block_hashes")
	e.events = e.hash(msgp.AppendArrayHeader(e.events, 1), key)
	e.field("medium")
	e.events = msgp.AppendString(e.events, medium)
	e.field("group_idx")
	if group == 0 && !e.o.Windowed {
		e.events = msgp.AppendNil(e.events)
	} else {
		e.events = msgp.AppendInt(e.events, group)
	}
}

// Cleared adds an AllBlocksCleared event.
func (e *KVEvents) Cleared() {
	e.endRun()
	e.begin("AllBlocksCleared", 0, "")
}

// begin writes the head of an event with that many fields, and the name of the
// first one.
func (e *KVEvents) begin(kind string, fields uint32, first string) {
	e.n++
	if e.o.Maps {
		e.events = msgp.AppendString(msgp.AppendMapHeader(e.events, fields+1), "type")
	} else {
		e.events = msgp.AppendArrayHeader(e.events, fields+1)
	}
	e.events = msgp.AppendString(e.events, kind)
	e.field(first)
}

// field writes the name of the next field, if fields have names.
func (e *KVEvents) field(name string) {
	if e.o.Maps && name != "" {
		e.events = msgp.AppendString(e.events, name)
	}
}

func (e *KVEvents) hash(b []byte, key uint64) []byte {
	if !e.o.ByteHashes {
		return msgp.AppendUint64(b, key)
	}
	var long [32]byte
	for i := range 4 {
		binary.BigEndian.PutUint64(long[8*i:], key+uint64(i))
	}
	return msgp.AppendBytes(b, long[:])
}

// endRun writes the event of the current run of blocks, if there is one.
func (e *KVEvents) endRun() {
	r := &e.run
	if len(r.keys) == 0 {
		return
	}
	if e.o.Windowed && r.medium == MediumGPU {
		e.stored(0, "sliding_window")
		for _, key := range r.keys[:max(0, len(r.keys)-windowBlocks)] {
			e.removed(MediumGPU, key, 0)
		}
	}
	e.stored(e.group(), "full_attention")
	r.keys, r.tokens = r.keys[:0], r.tokens[:0]
}

// windowBlocks is how many blocks a sliding window has.
const windowBlocks = 2

// stored writes the event of the current run for one group of layers.
func (e *KVEvents) stored(group int, kind string) {
	r := &e.run
	fields := uint32(9)
	if e.o.Maps || e.o.Windowed { // as newer versions do
		fields = 10
	}
	e.begin("BlockStored", fields, "block_hashes")
	b := msgp.AppendArrayHeader(e.events, uint32(len(r.keys)))
	for _, key := range r.keys {
		b = e.hash(b, key)
	}
	e.events = b
	e.field("parent_block_hash")
	switch {
	case r.first && e.o.ZeroParent && !e.o.ByteHashes:
		e.events = msgp.AppendUint64(e.events, 0)
	case r.first:
		e.events = msgp.AppendNil(e.events)
	default:
		e.events = e.hash(e.events, r.parent)
	}
	e.field("token_ids")
	b = msgp.AppendArrayHeader(e.events, uint32(len(r.tokens)))
	for _, t := range r.tokens {
		b = msgp.AppendUint32(b, t)
	}
	e.events = b
	e.field("block_size")
	size := e.o.BlockSize
	if len(r.tokens) == 0 {
		size = 0
	}
	e.events = msgp.AppendInt(e.events, size)
	e.field("lora_id")
	e.events = msgp.AppendNil(e.events)
	e.field("medium")
	e.events = msgp.AppendString(e.events, r.medium)
	e.field("lora_name")
	if r.lora == "" {
		e.events = msgp.AppendNil(e.events)
	} else {
		e.events = msgp.AppendString(e.events, r.lora)
	}
	e.field("extra_keys")
	e.extraKeys()
	e.field("group_idx")
	e.events = msgp.AppendInt(e.events, group)
	if fields == 10 {
		e.field("kv_cache_spec_kind")
		e.events = msgp.AppendString(e.events, kind)
	}
}

// extraKeys writes what each block's hash depends on besides its tokens: the
// adapter and, for the first block of a prompt, the salt.
func (e *KVEvents) extraKeys() {
	r := &e.run
	if r.lora == "" && r.salt == "" {
		e.events = msgp.AppendNil(e.events)
		return
	}
	b := msgp.AppendArrayHeader(e.events, uint32(len(r.keys)))
	for i := range r.keys {
		salt := r.salt
		if !r.first || i > 0 {
			salt = ""
		}
		n := uint32(0)
		for _, s := range []string{r.lora, salt} {
			if s != "" {
				n++
			}
		}
		if n == 0 {
			b = msgp.AppendNil(b)
			continue
		}
		b = msgp.AppendArrayHeader(b, n)
		for _, s := range []string{r.lora, salt} {
			if s != "" {
				b = msgp.AppendString(b, s)
			}
		}
	}
	e.events = b
}

// Batch ends the current batch and returns it with its number; false if it has no
// events. The caller must not change the payload.
func (e *KVEvents) Batch(seconds float64) (number uint64, payload []byte, ok bool) {
	e.endRun()
	if e.n == 0 {
		return 0, nil, false
	}
	var b []byte
	if e.o.Maps {
		b = msgp.AppendFloat64(msgp.AppendString(msgp.AppendMapHeader(b, 3), "ts"), seconds)
		b = msgp.AppendString(b, "events")
	} else {
		b = msgp.AppendFloat64(msgp.AppendArrayHeader(b, 3), seconds)
	}
	b = append(msgp.AppendArrayHeader(b, e.n), e.events...)
	if e.o.Maps {
		b = msgp.AppendString(b, "data_parallel_rank")
	}
	b = msgp.AppendInt(b, e.o.Rank)
	number = e.next
	e.next++
	e.kept[number%uint64(len(e.kept))] = b
	e.events, e.n = e.events[:0], 0
	return number, b, true
}

// Replay calls f with each kept batch whose number is at least from, in order.
func (e *KVEvents) Replay(from uint64, f func(number uint64, payload []byte)) {
	if kept := uint64(len(e.kept)); e.next > kept {
		from = max(from, e.next-kept)
	}
	if e.o.From1 {
		from = max(from, 1)
	}
	for ; from < e.next; from++ {
		f(from, e.kept[from%uint64(len(e.kept))])
	}
}
