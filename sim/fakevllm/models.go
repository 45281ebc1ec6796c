package fakevllm

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

type wireModel struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen *int    `json:"max_model_len"`
}

// models serves GET /v1/models: each model, then each adapter with the first
// model as its parent.
func (s *Server) models(x *exchange) {
	list := make([]wireModel, 0, len(s.o.Models)+len(s.o.LoRA))
	for _, m := range s.o.Models {
		list = append(list, wireModel{ID: m, Object: "model", Created: s.engine.started.Unix(), OwnedBy: "vllm", Root: s.o.Models[0], MaxModelLen: &s.o.MaxModelLen})
	}
	for _, m := range s.o.LoRA {
		list = append(list, wireModel{ID: m, Object: "model", Created: s.engine.started.Unix(), OwnedBy: "vllm", Root: m, Parent: &s.o.Models[0]})
	}
	x.json(http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []wireModel `json:"data"`
	}{"list", list})
}

// modelOf returns the model that a request names, and the adapter if it is one.
// A request without a model gets the first one.
func (s *Server) modelOf(r *wireRequest) (model, lora string, refused *apiError) {
	if r.Model == nil || *r.Model == "" {
		return s.o.Models[0], "", nil
	}
	// The name is kept longer than the body that it is part of.
	name := strings.Clone(*r.Model)
	switch {
	case slices.Contains(s.o.Models, name):
		return name, "", nil
	case slices.Contains(s.o.LoRA, name):
		return name, name, nil
	}
	return "", "", &apiError{status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		message: "The model `" + name + "` does not exist."}
}

// health serves GET /health.
func (s *Server) health(x *exchange) {
	if s.core.isDead() {
		x.raw(http.StatusServiceUnavailable, "text/plain", nil)
		return
	}
	x.raw(http.StatusOK, "text/plain", nil)
}

// version serves GET /version.
func (s *Server) version(x *exchange) {
	x.json(http.StatusOK, map[string]string{"version": "0.11.0"})
}

// tokenize serves POST /tokenize for one prompt or for messages. As with vLLM, it takes
// no ids and no lists of prompts, and knows less of a chat than a completion does.
func (s *Server) tokenize(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused == nil {
		_, _, refused = s.modelOf(r)
	}
	var tokens []uint32
	switch {
	case refused != nil:
	case r.Messages != nil:
		r.Documents, r.ReasoningEffort, r.ResponseFormat = nil, nil, nil
		tokens, refused = r.chatTokens()
	case len(r.Prompt) > 0 && r.Prompt[0] != '"':
		refused = &apiError{status: http.StatusBadRequest, kind: "Bad Request", param: "body.prompt", message: "Input should be a valid string"}
	default:
		var lists [][]uint32
		if lists, refused = prompts("prompt", r.Prompt); refused == nil {
			tokens = lists[0]
		}
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	if tokens == nil {
		tokens = []uint32{}
	}
	x.json(http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		Strings     []string `json:"token_strs"`
	}{len(tokens), s.o.MaxModelLen, tokens, nil})
}

// render serves POST /v1/chat/completions/render: the tokens of a chat, from all that
// a completion takes.
func (s *Server) render(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused == nil {
		_, _, refused = s.modelOf(r)
	}
	var tokens []uint32
	if refused == nil {
		tokens, refused = r.chatTokens()
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	x.json(http.StatusOK, struct {
		TokenIDs []uint32 `json:"token_ids"`
	}{tokens})
}

// detokenize serves POST /detokenize.
func (s *Server) detokenize(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused == nil {
		_, _, refused = s.modelOf(r)
	}
	if refused == nil && r.Tokens == nil {
		refused = missing("tokens")
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	var text []byte
	for _, id := range r.Tokens {
		text = appendText(text, id)
	}
	if !utf8.Valid(text) {
		text = []byte(strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	x.json(http.StatusOK, map[string]string{"prompt": string(text)})
}
