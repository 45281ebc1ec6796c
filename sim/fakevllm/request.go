package fakevllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/bytedance/sonic"
	"github.com/bytedance/sonic/decoder"
)

// wireRequest is the union of the request bodies that the server understands.
// Unknown fields are ignored, as by vLLM.
type wireRequest struct {
	Model               *string         `json:"model"`
	Messages            *[]wireMessage  `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	Prompt              json.RawMessage `json:"prompt"`
	Input               json.RawMessage `json:"input"`
	Tokens              []uint32        `json:"tokens"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	N                   *int            `json:"n"`
	Stream              *bool           `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage         *bool `json:"include_usage"`
		ContinuousUsageStats *bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	IgnoreEOS           *bool                      `json:"ignore_eos"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	CacheSalt           *string                    `json:"cache_salt"`
	EncodingFormat      *string                    `json:"encoding_format"`
	ReasoningEffort     json.RawMessage            `json:"reasoning_effort"`
	Documents           json.RawMessage            `json:"documents"`
	ResponseFormat      json.RawMessage            `json:"response_format"`
	TemplateArgs        map[string]json.RawMessage `json:"chat_template_kwargs"`
	Content             *string                    `json:"content"`
	Instructions        *string                    `json:"instructions"`
	System              json.RawMessage            `json:"system"`
	MaxOutputTokens     *int                       `json:"max_output_tokens"`
	Items               []agentItem                `json:"-"` // the messages of the Messages API
	Thinking            struct {
		Type string `json:"type"`
	} `json:"thinking"`
	OutputConfig struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"output_config"`
	Reasoning struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"reasoning"`
	XArgs struct {
		ReportMode string `json:"kv_cache_report_mode"`
	} `json:"vllm_xargs"`
}

type wireMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
	Reasoning string          `json:"reasoning"`
}

type wirePart struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// apiError is an error in OpenAI's form.
type apiError struct {
	status  int
	kind    string
	param   string
	message string
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...)}
}

// missing is the error for a body without a required field.
func missing(field string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "Bad Request", param: field, message: fmt.Sprintf("body.%s: Field required", field)}
}

// maxDepth is the deepest accepted nesting of a body; Python's parser fails near
// 1,000.
const maxDepth = 1000

// decodeRequest reads a JSON body.
func decodeRequest(body []byte) (*wireRequest, *apiError) {
	r := new(wireRequest)
	if err := decode(body, r); err != nil {
		return nil, &apiError{status: http.StatusBadRequest, kind: "Bad Request", message: "JSON decode error: " + err.Error()}
	}
	return r, nil
}

// decode unmarshals untrusted data.
func decode(data []byte, to any) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("invalid UTF-8")
	}
	if depth(data) > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	err := codec.Unmarshal(data, to)
	if syntax, ok := errors.AsType[decoder.SyntaxError](err); ok {
		// The library's own text repeats the input.
		return fmt.Errorf("%s at byte %d", syntax.Message(), syntax.Pos)
	}
	if wrong, ok := errors.AsType[*decoder.MismatchTypeError](err); ok {
		return fmt.Errorf("wrong type for %v at byte %d", wrong.Type, wrong.Pos)
	}
	return err
}

// codec is as strict as Python's: case-sensitive keys, no control characters in
// strings.
var codec = sonic.Config{CaseSensitive: true, ValidateString: true}.Froze()

// depth returns the deepest nesting in data, which need not be valid.
func depth(data []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}

// chatTokens applies the chat template: the extra fields of the template, tools, then each
// message, then the opening of the answer.
func (r *wireRequest) chatTokens() ([]uint32, *apiError) {
	if r.Messages == nil {
		return nil, missing("messages")
	}
	var t []uint32
	for _, of := range []struct {
		name  string
		value json.RawMessage
	}{{"documents", r.Documents}, {"reasoning_effort", r.ReasoningEffort}, {"response_format", r.ResponseFormat}} {
		if len(of.value) == 0 {
			of.value = r.TemplateArgs[of.name]
		}
		if len(of.value) > 0 && !isNull(of.value) {
			t = append(t, tokenStart)
			t = append(appendTokens(t, of.name+string(of.value)), tokenEnd)
		}
	}
	if len(r.Tools) > 0 && !isNull(r.Tools) {
		t = append(t, tokenStart)
		t = appendTokens(t, "tools\n")
		t = append(appendTokens(t, toolText(r.Tools)), tokenEnd)
	}
	for i := range *r.Messages {
		m := &(*r.Messages)[i]
		if m.Role == "" {
			return nil, missing(fmt.Sprintf("messages.%d.role", i))
		}
		t = append(t, tokenStart)
		t = appendTokens(appendTokens(t, m.Role), "\n")
		if m.Reasoning != "" {
			t = appendTokens(t, "<think>"+m.Reasoning+"</think>")
		}
		var err error
		if t, err = appendContent(t, m.Content); err != nil {
			return nil, badRequest("body.messages.%d.content: %v", i, err)
		}
		if len(m.ToolCalls) > 0 && !isNull(m.ToolCalls) {
			t = appendTokens(t, callText(m.ToolCalls))
		}
		t = append(t, tokenEnd)
	}
	if r.AddGenerationPrompt == nil || *r.AddGenerationPrompt {
		t = append(t, tokenStart)
		t = appendTokens(appendTokens(t, "assistant"), "\n")
	}
	return t, nil
}

// appendContent appends the tokens of a message's content, which may be a string,
// parts, or empty.
func appendContent(t []uint32, content json.RawMessage) ([]uint32, error) {
	if len(content) == 0 || isNull(content) {
		return t, nil
	}
	if content[0] == '"' {
		var s string
		if err := decode(content, &s); err != nil {
			return nil, err
		}
		return appendTokens(t, s), nil
	}
	var parts []json.RawMessage
	if err := decode(content, &parts); err != nil {
		return nil, fmt.Errorf("want a string or parts")
	}
	for _, raw := range parts {
		var p wirePart
		if err := decode(raw, &p); err != nil {
			return nil, err
		}
		if p.Text != nil {
			t = appendTokens(t, *p.Text)
		} else {
			t = appendMedia(t, raw)
		}
	}
	return t, nil
}

// prompts returns the tokens of each prompt in a string, an array of strings,
// an array of token ids or an array of such arrays.
func prompts(field string, raw json.RawMessage) ([][]uint32, *apiError) {
	if len(raw) == 0 || isNull(raw) {
		return nil, missing(field)
	}
	if raw[0] == '"' {
		var s string
		if err := decode(raw, &s); err != nil {
			return nil, badRequest("body.%s: %v", field, err)
		}
		return [][]uint32{appendTokens(nil, s)}, nil
	}
	var ids []uint32
	if decode(raw, &ids) == nil && len(ids) > 0 {
		return [][]uint32{ids}, nil
	}
	var texts []string
	if decode(raw, &texts) == nil && len(texts) > 0 {
		out := make([][]uint32, len(texts))
		for i, s := range texts {
			out[i] = appendTokens(nil, s)
		}
		return out, nil
	}
	var lists [][]uint32
	if decode(raw, &lists) == nil && len(lists) > 0 {
		return lists, nil
	}
	return nil, badRequest("body.%s: want a string, strings, token ids or lists of token ids", field)
}

// maxOutput returns the request's limit of output tokens, nil for none.
func (r *wireRequest) maxOutput() *int {
	if r.MaxCompletionTokens != nil {
		return r.MaxCompletionTokens
	}
	return r.MaxTokens
}

func isTrue(b *bool) bool { return b != nil && *b }

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
