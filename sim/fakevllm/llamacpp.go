package fakevllm

import (
	"net/http"
	"slices"
	"strings"
)

// llamaRoutes are the paths that llama.cpp serves differently from vLLM.
var llamaRoutes = map[string]route{
	"/tokenize":                   {http.MethodPost, (*Server).llamaTokenize},
	"/apply-template":             {http.MethodPost, (*Server).applyTemplate},
	"/metrics":                    {http.MethodGet, (*Server).llamaMetrics},
	"/v1/embeddings":              {http.MethodPost, (*Server).noEmbeddings},
	"/v1/chat/completions/render": {},
	"/v1/messages/render":         {},
	"/v1/responses/render":        {},
	"/v1/messages/count_tokens":   {},
	"/v1/responses":               {},
	"/v1/messages":                {},
}

// llamaTokenize serves POST /tokenize, which takes only text. For anything else it returns
// no tokens.
func (s *Server) llamaTokenize(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused != nil {
		x.fail(refused)
		return
	}
	tokens := []uint32{}
	if r.Content != nil {
		tokens = appendSpecial(tokens, *r.Content)
	}
	x.json(http.StatusOK, map[string]any{"tokens": tokens})
}

// applyTemplate serves POST /apply-template: the text of a chat.
func (s *Server) applyTemplate(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused == nil {
		var tokens []uint32
		if tokens, refused = r.chatTokens(); refused == nil {
			x.json(http.StatusOK, map[string]string{"prompt": textOf(tokens)})
			return
		}
	}
	x.fail(refused)
}

// noEmbeddings answers as a server that was not started with --embeddings.
func (s *Server) noEmbeddings(x *exchange) {
	x.fail(&apiError{status: http.StatusNotImplemented, kind: "not_supported_error", message: "This server does not support embeddings. Start it with `--embeddings`"})
}

// llamaMetrics serves GET /metrics with llama.cpp's metric names.
func (s *Server) llamaMetrics(x *exchange) {
	e := s.engine
	e.mu.Lock()
	st := e.model.Stats()
	e.mu.Unlock()
	p := &page{}
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"prompt_tokens_total", "counter", "Number of prompt tokens processed, excluding cached tokens", float64(st.PromptTokens - st.HitTokens)},
		{"prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", float64(st.HitTokens)},
		{"tokens_predicted_total", "counter", "Number of generation tokens processed", float64(st.GenerationTokens)},
		{"requests_processing", "gauge", "Number of requests processing", float64(st.Running)},
		{"requests_deferred", "gauge", "Number of requests deferred", float64(st.Waiting)},
	} {
		p.head("llamacpp:"+m.name, m.kind, m.help)
		p.bare("llamacpp:"+m.name, m.value)
	}
	x.raw(http.StatusOK, "text/plain; version=0.0.4", p.b)
}

// textOf is the text of tokens, special ones included.
func textOf(tokens []uint32) string {
	var text []byte
	for _, id := range tokens {
		text = appendText(text, id)
	}
	return string(text)
}

// appendSpecial is appendTokens for text that may spell special tokens out.
func appendSpecial(dst []uint32, text string) []uint32 {
	ids := make([]uint32, 0, len(specialText))
	for id := range specialText {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for {
		at, found := len(text), uint32(0)
		for _, id := range ids {
			if i := strings.Index(text, specialText[id]); i >= 0 && i < at {
				at, found = i, id
			}
		}
		dst = appendTokens(dst, text[:at])
		if found == 0 {
			return dst
		}
		dst = append(dst, found)
		text = text[at+len(specialText[found]):]
	}
}
