package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"
	"github.com/tinylib/msgp/msgp"
)

// blockEvent is one event of an engine's KV cache.
type blockEvent struct {
	kind eventKind
	// hashes are the engine's own names of the blocks; byte strings are hashed
	// to numbers.
	hashes    []uint64
	parent    uint64
	hasParent bool
	tokens    []uint32
	size      int      // tokens in a block
	lora      []byte   // name of the adapter; nil = none
	medium    []byte   // nil = not told, which is the GPU
	group     int      // of layers with a cache of their own; 0 = the first or only one
	extra     [][]byte // for each block what tells it apart besides, as it is encoded; may be shorter
	numbered  bool     // lora is the adapter's number, which stands for no name
	window    bool     // layers that look back no further than a window: what is before it goes
}

type eventKind uint8

const (
	eventOther eventKind = iota // of a newer version
	eventStored
	eventRemoved
	eventCleared
)

// onGPU reports whether the event is of the memory that prompts are computed in.
func (e *blockEvent) onGPU() bool {
	return len(e.medium) == 0 || string(e.medium) == "GPU" || string(e.medium) == "gpu"
}

// Bounds of one event.
const (
	maxEventBlocks = 1 << 20
	maxEventTokens = 16 << 20
)

var errEvents = errors.New("KV-cache events that are not understood")

// The fields of events in the order of the arrays, and by their names in maps.
var (
	storedFields  = [...]string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
	removedFields = [...]string{"block_hashes", "medium", "group_idx"}
)

// readBatch calls f with each event of a batch. The event is valid during the
// call alone. What follows the known fields is passed over. The events before
// an error are told.
func readBatch(payload []byte, e *blockEvent, f func(*blockEvent)) error {
	b := payload
	switch msgp.NextType(b) {
	case msgp.ArrayType: // ts, events, data_parallel_rank
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n < 2 {
			return errEvents
		}
		if b, err = msgp.Skip(b); err != nil {
			return err
		}
		return readEvents(b, e, f)
	case msgp.MapType:
		n, b, err := msgp.ReadMapHeaderBytes(b)
		for ; err == nil && n > 0; n-- {
			var key []byte
			if key, b, err = text(b); err != nil {
				break
			}
			if string(key) == "events" {
				return readEvents(b, e, f)
			}
			b, err = msgp.Skip(b)
		}
		if err != nil {
			return err
		}
	}
	return errEvents
}

func readEvents(b []byte, e *blockEvent, f func(*blockEvent)) error {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		if b, err = e.read(b); err != nil {
			return err
		}
		if e.kind != eventOther {
			f(e)
		}
	}
	return nil
}

// read reads one event: an array that begins with its kind, or a map in which
// "type" says it.
func (e *blockEvent) read(b []byte) ([]byte, error) {
	*e = blockEvent{hashes: e.hashes[:0], tokens: e.tokens[:0], extra: e.extra[:0]}
	if msgp.NextType(b) == msgp.MapType {
		return e.readMap(b)
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n == 0 {
		return b, errEvents
	}
	kind, b, err := text(b)
	if err != nil {
		return b, err
	}
	e.kind = kindOfEvent(kind)
	for i := range int(n) - 1 {
		name := ""
		switch {
		case e.kind == eventStored && i < len(storedFields):
			name = storedFields[i]
		case e.kind == eventRemoved && i < len(removedFields):
			name = removedFields[i]
		}
		if b, err = e.field(name, b); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (e *blockEvent) readMap(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; err == nil && n > 0; n-- {
		var key []byte
		if key, b, err = text(b); err != nil {
			break
		}
		if string(key) == "type" {
			var kind []byte
			kind, b, err = text(b)
			e.kind = kindOfEvent(kind)
			continue
		}
		b, err = e.field(string(key), b)
	}
	return b, err
}

func kindOfEvent(name []byte) eventKind {
	switch string(name) {
	case "BlockStored":
		return eventStored
	case "BlockRemoved":
		return eventRemoved
	case "AllBlocksCleared":
		return eventCleared
	}
	return eventOther
}

// field reads the value of the field of that name; it passes over those of
// other names and those that are nil.
func (e *blockEvent) field(name string, b []byte) (_ []byte, err error) {
	if msgp.NextType(b) == msgp.NilType {
		return msgp.ReadNilBytes(b)
	}
	switch name {
	case "block_hashes":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventBlocks {
			return b, errEvents
		}
		for ; n > 0; n-- {
			var h uint64
			if h, b, err = blockHash(b); err != nil {
				return b, err
			}
			e.hashes = append(e.hashes, h)
		}
		return b, nil
	case "parent_block_hash":
		e.parent, b, err = blockHash(b)
		e.hasParent = err == nil
		return b, err
	case "token_ids":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventTokens {
			return b, errEvents
		}
		for ; n > 0; n-- {
			var t uint32
			if t, b, err = msgp.ReadUint32Bytes(b); err != nil {
				return b, err
			}
			e.tokens = append(e.tokens, t)
		}
		return b, nil
	case "block_size":
		e.size, b, err = msgp.ReadIntBytes(b)
		return b, err
	case "group_idx":
		e.group, b, err = msgp.ReadIntBytes(b)
		return b, err
	case "lora_id":
		e.numbered = true
	case "kv_cache_spec_sliding_window":
		e.window = true
	case "lora_name":
		e.lora, b, err = text(b)
		return b, err
	case "medium":
		e.medium, b, err = text(b)
		return b, err
	case "extra_keys":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventBlocks {
			return b, errEvents
		}
		for ; n > 0; n-- {
			rest, err := msgp.Skip(b)
			if err != nil {
				return b, err
			}
			e.extra = append(e.extra, b[:len(b)-len(rest)])
			b = rest
		}
		return b, nil
	}
	return msgp.Skip(b)
}

// blockHash reads an engine's name of a block: a number, or bytes.
func blockHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType:
		i, b, err := msgp.ReadInt64Bytes(b)
		return uint64(i), b, err
	case msgp.UintType:
		return msgp.ReadUint64Bytes(b)
	}
	s, b, err := text(b)
	return xxhash.Sum64(s), b, err
}

// text reads a string, or bytes, as a part of b.
func text(b []byte) (s, rest []byte, err error) {
	if msgp.NextType(b) == msgp.BinType {
		return msgp.ReadBytesZC(b)
	}
	return msgp.ReadStringZC(b)
}

// otherKeys takes a block's extra keys apart: without the adapter's name, which
// has a field of its own, is a single string left, or something else? rest is
// nil where nothing is left.
func otherKeys(extra, lora []byte) (single, rest []byte) {
	if len(extra) == 0 || msgp.NextType(extra) != msgp.ArrayType {
		return nil, nil
	}
	n, b, err := msgp.ReadArrayHeaderBytes(extra)
	count := 0
	for ; err == nil && n > 0; n-- {
		after, err := msgp.Skip(b)
		if err != nil {
			return nil, extra
		}
		key := b[:len(b)-len(after)]
		b = after
		var s []byte
		if t := msgp.NextType(key); t == msgp.StrType || t == msgp.BinType {
			s, _, _ = text(key)
			if len(lora) > 0 && string(s) == string(lora) {
				continue
			}
		}
		count++
		single = s
	}
	switch {
	case err != nil:
		return nil, extra
	case count == 0:
		return nil, nil
	case count == 1 && single != nil:
		return single, extra
	}
	return nil, extra
}
