package tiny

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Sizes of the model.
const (
	hidden  = 256
	inner   = 512
	layers  = 2
	heads   = 4
	context = 8192
	rank    = 8 // of the adapters
)

// tensor is a matrix of random numbers, or a vector of ones.
type tensor struct {
	hf, gguf string // its name in each form
	rows     int    // 0 in a vector
	cols     int
	scale    float64
}

// tensors lists the weights of the model in the order in which they are written.
func tensors(vocabulary int) (list []tensor) {
	list = append(list,
		tensor{"model.embed_tokens.weight", "token_embd.weight", vocabulary, hidden, 0.5},
		tensor{"model.norm.weight", "output_norm.weight", 0, hidden, 0},
		tensor{"lm_head.weight", "output.weight", vocabulary, hidden, 0.05})
	for l := range layers {
		for _, m := range []struct {
			hf, gguf   string
			rows, cols int
		}{
			{"input_layernorm", "attn_norm", 0, hidden},
			{"self_attn.q_proj", "attn_q", hidden, hidden},
			{"self_attn.k_proj", "attn_k", hidden, hidden},
			{"self_attn.v_proj", "attn_v", hidden, hidden},
			{"self_attn.o_proj", "attn_output", hidden, hidden},
			{"post_attention_layernorm", "ffn_norm", 0, hidden},
			{"mlp.gate_proj", "ffn_gate", inner, hidden},
			{"mlp.up_proj", "ffn_up", inner, hidden},
			{"mlp.down_proj", "ffn_down", hidden, inner},
		} {
			list = append(list, tensor{fmt.Sprintf("model.layers.%d.%s.weight", l, m.hf), fmt.Sprintf("blk.%d.%s.weight", l, m.gguf), m.rows, m.cols, 0.05})
		}
	}
	return list
}

// values are the numbers of a tensor, row by row.
func (t tensor) values(r *rand.Rand) []float32 {
	v := make([]float32, max(1, t.rows)*t.cols)
	for i := range v {
		v[i] = 1
		if t.rows > 0 {
			v[i] = float32(r.NormFloat64() * t.scale)
		}
	}
	return v
}

// bfloat16 appends v in the format of that name.
func bfloat16(b []byte, v []float32) []byte {
	for _, f := range v {
		bits := math.Float32bits(f)
		b = append(b, byte(bits>>16), byte(bits>>24))
	}
	return b
}
