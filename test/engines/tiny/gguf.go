package tiny

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
)

// Types of values in GGUF.
const (
	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9
)

// gguf is a file of that format as it is written.
type gguf struct {
	meta  bytes.Buffer
	count uint64
}

func (g *gguf) put(v any) {
	switch v := v.(type) {
	case string:
		g.put(uint64(len(v)))
		g.meta.WriteString(v)
	case []string:
		g.put(uint32(ggufString))
		g.put(uint64(len(v)))
		for _, s := range v {
			g.put(s)
		}
	case []int32:
		g.put(uint32(ggufInt32))
		g.put(uint64(len(v)))
		for _, n := range v {
			g.put(n)
		}
	default:
		_ = binary.Write(&g.meta, binary.LittleEndian, v) // into memory: cannot fail
	}
}

// set writes a key and its value.
func (g *gguf) set(key string, v any) {
	g.count++
	g.put(key)
	kind := uint32(ggufArray)
	switch v.(type) {
	case uint32:
		kind = ggufUint32
	case float32:
		kind = ggufFloat32
	case bool:
		kind = ggufBool
	case string:
		kind = ggufString
	}
	g.put(kind)
	g.put(v)
}

// GGUF writes the model for llama.cpp.
func GGUF(path string, v *Vocabulary, seed uint64) error {
	g := new(gguf)
	g.set("general.architecture", "llama")
	g.set("general.name", "tiny")
	g.set("llama.context_length", uint32(context))
	g.set("llama.embedding_length", uint32(hidden))
	g.set("llama.block_count", uint32(layers))
	g.set("llama.feed_forward_length", uint32(inner))
	g.set("llama.attention.head_count", uint32(heads))
	g.set("llama.attention.head_count_kv", uint32(heads))
	g.set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	g.set("llama.rope.dimension_count", uint32(hidden/heads))
	g.set("llama.vocab_size", uint32(len(v.Tokens)))
	g.set("general.file_type", uint32(0))
	g.set("tokenizer.ggml.model", "gpt2")
	g.set("tokenizer.ggml.pre", "gpt-2")
	g.set("tokenizer.ggml.tokens", v.Tokens)
	kinds := make([]int32, len(v.Tokens))
	for i := range kinds {
		kinds[i] = 1
		if i < len(specials) {
			kinds[i] = 3 // a control token
		}
	}
	g.set("tokenizer.ggml.token_type", kinds)
	g.set("tokenizer.ggml.merges", v.joined())
	g.set("tokenizer.ggml.bos_token_id", uint32(v.id(Begin)))
	g.set("tokenizer.ggml.eos_token_id", uint32(v.id(turnEnd)))
	g.set("tokenizer.ggml.add_bos_token", true)
	g.set("tokenizer.chat_template", Template)

	const alignment = 32
	list := tensors(len(v.Tokens))
	r := rand.New(rand.NewPCG(seed, 0))
	var infos gguf
	var data []byte
	for _, t := range list {
		infos.put(t.gguf)
		if t.rows == 0 {
			infos.put(uint32(1))
			infos.put(uint64(t.cols))
		} else {
			infos.put(uint32(2))
			infos.put(uint64(t.cols)) // the fastest dimension first
			infos.put(uint64(t.rows))
		}
		infos.put(uint32(0)) // 32-bit floats
		infos.put(uint64(len(data)))
		data, _ = binary.Append(data, binary.LittleEndian, t.values(r))
		data = append(data, make([]byte, (alignment-len(data)%alignment)%alignment)...)
	}
	var head gguf
	head.meta.WriteString("GGUF")
	head.put(uint32(3))
	head.put(uint64(len(list)))
	head.put(g.count)
	out := append(head.meta.Bytes(), g.meta.Bytes()...)
	out = append(out, infos.meta.Bytes()...)
	out = append(out, make([]byte, (alignment-len(out)%alignment)%alignment)...)
	return os.WriteFile(path, append(out, data...), 0o644)
}
