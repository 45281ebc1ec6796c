package fakevllm

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
)

// embeddingSize is the length of the vectors.
const embeddingSize = 64

type wireEmbedding struct {
	Index     int    `json:"index"`
	Object    string `json:"object"`
	Embedding any    `json:"embedding"`
}

// embeddings serves POST /v1/embeddings: a prefill for each input, and a unit
// vector that depends only on its tokens.
func (s *Server) embeddings(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused != nil {
		x.fail(refused)
		return
	}
	lists, refused := prompts("input", r.Input)
	if refused != nil {
		x.fail(refused)
		return
	}
	one := 1
	r.Stream, r.StreamOptions, r.N, r.MaxTokens, r.MaxCompletionTokens = nil, nil, nil, &one, nil
	g, refused := s.newGeneration(r, &dialect{prefix: "embd-"}, lists)
	if refused == nil {
		if err := x.engine.submit(g.call); err != nil {
			refused = badRequest("%v", err)
		}
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	defer func() {
		if !g.done.Load() {
			x.engine.cancel(g.call)
		}
	}()
	for !g.done.Load() {
		if !s.wait(x, g) {
			x.fail(coreDead)
			return
		}
	}
	data := make([]wireEmbedding, len(g.seqs))
	for i, seed := range g.seeds {
		v := embedding(seed)
		data[i] = wireEmbedding{Index: i, Object: "embedding", Embedding: v}
		if r.EncodingFormat != nil && *r.EncodingFormat == "base64" {
			raw := make([]byte, 0, 4*len(v))
			for _, f := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
			}
			data[i].Embedding = base64.StdEncoding.EncodeToString(raw)
		}
	}
	usage := g.usageNow()
	usage.TotalTokens, usage.CompletionTokens = usage.PromptTokens, 0
	x.json(http.StatusOK, struct {
		ID      string          `json:"id"`
		Object  string          `json:"object"`
		Created int64           `json:"created"`
		Model   string          `json:"model"`
		Data    []wireEmbedding `json:"data"`
		Usage   wireUsage       `json:"usage"`
	}{g.id, "list", g.created, g.model, data, usage})
}

// embedding returns a unit vector derived from a seed.
func embedding(seed uint64) []float32 {
	v := make([]float32, embeddingSize)
	sum := 0.0
	for i := range v {
		seed = seed*6364136223846793005 + 1442695040888963407
		f := float64(int64(seed)>>11) / (1 << 52)
		v[i] = float32(f)
		sum += f * f
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}
