// Package tiny writes tiny language models with random weights, in the forms that real
// engines load: a Llama of two layers with a BPE tokenizer and a chat template, LoRA
// adapters for it, and the same as GGUF. Everything is computed here, from a seed and
// a text that the tokenizer learns.
package tiny
