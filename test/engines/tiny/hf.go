package tiny

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
)

type object map[string]any

// writeJSON writes v to a file of a folder.
func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), b, 0o644)
}

// Model writes the model into a folder, as vLLM and SGLang load it.
func Model(dir string, v *Vocabulary, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]any{
		"tokenizer.json": v.tokenizer(),
		"tokenizer_config.json": object{
			"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": Begin, "eos_token": turnEnd, "unk_token": "<unk>", "pad_token": end,
			"model_max_length": context, "chat_template": Template, "clean_up_tokenization_spaces": false,
		},
		"config.json": object{
			"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
			"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": hidden / heads,
			"max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": v.padded(),
			"bos_token_id": v.id(Begin), "eos_token_id": v.id(turnEnd), "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
		},
		"generation_config.json": object{"bos_token_id": v.id(Begin), "eos_token_id": v.id(turnEnd)},
	}
	for name, content := range files {
		if err := writeJSON(dir, name, content); err != nil {
			return err
		}
	}
	return safetensors(filepath.Join(dir, "model.safetensors"), tensors(v.padded()), seed)
}

// Adapter writes a LoRA adapter of the model into a folder.
func Adapter(dir string, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := writeJSON(dir, "adapter_config.json", object{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "target_modules": []string{"q_proj", "v_proj"},
		"base_model_name_or_path": "tiny", "bias": "none", "lora_dropout": 0.0, "fan_in_fan_out": false,
	})
	if err != nil {
		return err
	}
	var list []tensor
	for l := range layers {
		for _, m := range []string{"q_proj", "v_proj"} {
			name := "base_model.model.model.layers." + string(rune('0'+l)) + ".self_attn." + m
			list = append(list, tensor{hf: name + ".lora_A.weight", rows: rank, cols: hidden, scale: 0.1}, tensor{hf: name + ".lora_B.weight", rows: hidden, cols: rank, scale: 0.1})
		}
	}
	return safetensors(filepath.Join(dir, "adapter_model.safetensors"), list, seed)
}

// safetensors writes tensors: the length of the head, the head, the numbers.
func safetensors(path string, list []tensor, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	head := object{"__metadata__": object{"format": "pt"}}
	var data []byte
	for _, t := range list {
		shape := []int{t.rows, t.cols}
		if t.rows == 0 {
			shape = shape[1:]
		}
		from := len(data)
		data = bfloat16(data, t.values(r))
		head[t.hf] = object{"dtype": "BF16", "shape": shape, "data_offsets": []int{from, len(data)}}
	}
	h, err := json.Marshal(head)
	if err != nil {
		return err
	}
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	return os.WriteFile(path, append(append(out, h...), data...), 0o644)
}

// tokenizer is the vocabulary in the form of Hugging Face's tokenizers.
func (v *Vocabulary) tokenizer() object {
	ids := object{}
	var added []object
	for i, t := range v.Tokens {
		ids[t] = i
		if i < len(specials) {
			added = append(added, object{"id": i, "content": t, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		}
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	begin := object{"SpecialToken": object{"id": Begin, "type_id": 0}}
	first, second := object{"Sequence": object{"id": "A", "type_id": 0}}, object{"Sequence": object{"id": "B", "type_id": 1}}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "added_tokens": added,
		"pre_tokenizer": level, "decoder": level,
		"post_processor": object{
			"type": "TemplateProcessing", "single": []object{begin, first}, "pair": []object{begin, first, second},
			"special_tokens": object{Begin: object{"id": Begin, "ids": []int{v.id(Begin)}, "tokens": []string{Begin}}},
		},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "vocab": ids, "merges": v.Merges,
		},
	}
}
