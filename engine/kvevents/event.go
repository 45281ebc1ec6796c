package kvevents

import (
	"bytes"
	"errors"
	"hash/maphash"

	"github.com/tinylib/msgp/msgp"
)

// event is one event of an engine's KV cache.
type event struct {
	kind eventKind
	// hashes are the engine's own hashes of the blocks. Byte strings are hashed to
	// numbers.
	hashes    []uint64
	parent    uint64
	hasParent bool
	tokens    []uint32
	size      int      // tokens in a block
	lora      []byte   // name of the adapter; nil = none
	medium    []byte   // nil = the GPU
	remote    bool     // it is at another host than the engine
	group     int      // of layers that share a cache; 0 = the first or only group
	extra     [][]byte // extra keys by block, encoded; may be shorter than hashes
	loraByID  bool     // the adapter is known by number only
	partial   bool     // the layers keep only a part of each prompt, such as a sliding window
}

type eventKind uint8

const (
	eventOther eventKind = iota // of a newer version; skipped
	eventStored
	eventRemoved
	eventCleared
)

// Bounds of one event.
const (
	maxEventBlocks = 1 << 20
	maxEventTokens = 16 << 20
)

var errFormat = errors.New("malformed KV-cache events")

// The fields of events: their order in arrays, their names in maps.
var (
	storedFields  = [...]string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality"}
	removedFields = [...]string{"block_hashes", "medium", "group_idx", "locality"}
)

// readBatch decodes a batch into e, event by event, and calls f after each. e is
// valid during the call only. Unknown fields are skipped. f is called for the
// events before an error.
func readBatch(payload []byte, e *event, f func(*event)) error {
	b := payload
	switch msgp.NextType(b) {
	case msgp.ArrayType: // ts, events, data_parallel_rank
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n < 2 {
			return errFormat
		}
		if b, err = msgp.Skip(b); err != nil {
			return err
		}
		return readEvents(b, e, f)
	case msgp.MapType:
		n, b, err := msgp.ReadMapHeaderBytes(b)
		for ; err == nil && n > 0; n-- {
			var key []byte
			if key, b, err = readText(b); err != nil {
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
	return errFormat
}

func readEvents(b []byte, e *event, f func(*event)) error {
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

// read reads one event: an array that begins with its kind, or a map with the kind
// under "type".
func (e *event) read(b []byte) ([]byte, error) {
	*e = event{hashes: e.hashes[:0], tokens: e.tokens[:0], extra: e.extra[:0]}
	if msgp.NextType(b) == msgp.MapType {
		return e.readMap(b)
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n == 0 {
		return b, errFormat
	}
	kind, b, err := readText(b)
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

func (e *event) readMap(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; err == nil && n > 0; n-- {
		var key []byte
		if key, b, err = readText(b); err != nil {
			break
		}
		if string(key) == "type" {
			var kind []byte
			kind, b, err = readText(b)
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

// field reads the value of the field of that name. It skips unknown fields and nil
// values.
func (e *event) field(name string, b []byte) (_ []byte, err error) {
	if msgp.NextType(b) == msgp.NilType {
		return msgp.ReadNilBytes(b)
	}
	switch name {
	case "block_hashes":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventBlocks {
			return b, errFormat
		}
		for ; n > 0; n-- {
			var h uint64
			if h, b, err = readHash(b); err != nil {
				return b, err
			}
			e.hashes = append(e.hashes, h)
		}
		return b, nil
	case "parent_block_hash":
		number := msgp.NextType(b) == msgp.IntType || msgp.NextType(b) == msgp.UintType
		e.parent, b, err = readHash(b)
		e.hasParent = err == nil && !(number && e.parent == 0) // some engines mean none by 0
		return b, err
	case "token_ids":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventTokens {
			return b, errFormat
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
		e.loraByID = true
	case "kv_cache_spec_sliding_window":
		e.partial = true
	case "kv_cache_spec_kind":
		var kind []byte
		kind, b, err = readText(b)
		e.partial = e.partial || partialKind(kind)
		return b, err
	case "lora_name":
		e.lora, b, err = readText(b)
		return b, err
	case "medium":
		e.medium, b, err = readText(b)
		return b, err
	case "locality":
		var where []byte
		where, b, err = readText(b)
		e.remote = string(where) == "REMOTE"
		return b, err
	case "extra_keys":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n > maxEventBlocks {
			return b, errFormat
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

// partialKind reports whether layers of that kind keep only a part of each prompt.
// Unknown kinds are assumed to keep all of it.
func partialKind(kind []byte) bool {
	for _, part := range partialKinds {
		if bytes.Contains(kind, part) {
			return true
		}
	}
	return false
}

var partialKinds = [...][]byte{[]byte("sliding"), []byte("chunked"), []byte("mamba"), []byte("cross"), []byte("encoder")}

// hashSeed keys the numbers that stand for hashes of bytes.
var hashSeed = maphash.MakeSeed()

// readHash reads an engine's hash of a block: a number or bytes.
func readHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType:
		i, b, err := msgp.ReadInt64Bytes(b)
		return uint64(i), b, err
	case msgp.UintType:
		return msgp.ReadUint64Bytes(b)
	}
	s, b, err := readText(b)
	return maphash.Bytes(hashSeed, s), b, err
}

// readText reads a string or bytes. The result is part of b.
func readText(b []byte) (s, rest []byte, err error) {
	if msgp.NextType(b) == msgp.BinType {
		return msgp.ReadBytesZC(b)
	}
	return msgp.ReadStringZC(b)
}

// splitExtraKeys splits a block's extra keys, except for the adapter's name, which has its
// own field. If one string is left, it is single. rest is all of the encoded keys, or nil
// if none is left.
func splitExtraKeys(extra, lora []byte) (single, rest []byte) {
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
			s, _, _ = readText(key)
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
