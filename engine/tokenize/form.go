package tokenize

import (
	"encoding/json"

	"github.com/bytedance/sonic"
)

// Form is the API that a body is of.
type Form uint8

// The forms whose prompts can be tokenized.
const (
	Completions Form = iota
	Chat
	Messages  // Anthropic's
	Responses // OpenAI's

	formCount = iota
)

var formNames = [formCount]string{"completions", "chat", "messages", "responses"}

// String returns the name for the log.
func (f Form) String() string { return formNames[f] }

// isConverted reports whether engines turn bodies of the form into chats, and tokenize
// those.
func (f Form) isConverted() bool { return f == Messages || f == Responses }

// renderCalls are the calls that return the tokens of a whole body. vLLM 0.32 serves them
// with --enable-scale-out only.
var renderCalls = [formCount]string{
	Chat: "/v1/chat/completions/render", Messages: "/v1/messages/render", Responses: "/v1/responses/render",
}

// render asks an engine for the tokens of a body as it is.
func (t *Tokenizer) render(address string, q *question) ([][]uint32, error) {
	lists, err := t.tokens(address, renderCalls[q.form], q.body)
	if isAbsent(err) {
		t.learn(address, func(a *api) { a.noRender[q.form] = t.now().Add(learnedFor) })
	}
	return lists, err
}

// askConverted asks for the tokens of a body that the engine turns into a chat: in one
// call where it has one, else by doing the same here.
func (t *Tokenizer) askConverted(address string, q *question, known api) ([][]uint32, error) {
	if !known.isLlamaCpp(t.now()) && known.renders(q.form, t.now()) {
		lists, err := t.render(address, q)
		if !isAbsent(err) {
			return lists, err
		}
	}
	if q.form == Messages {
		return t.askMessages(address, q)
	}
	c, err := convertResponses(q.body)
	if err != nil {
		return nil, err
	}
	return t.askChat(address, c)
}

// askChat asks for the tokens of a chat that was made of another body.
func (t *Tokenizer) askChat(address string, c *chatBody) ([][]uint32, error) {
	body, err := sonic.Marshal(c)
	if err != nil {
		return nil, err
	}
	q, err := newQuestion(body, Chat)
	if err != nil {
		return nil, err
	}
	return t.ask(address, q)
}

// chatBody is a body of /tokenize.
type chatBody struct {
	Model    json.RawMessage            `json:"model,omitempty"`
	Messages []chatMessage              `json:"messages"`
	Tools    *[]chatTool                `json:"tools,omitempty"`
	Args     map[string]json.RawMessage `json:"chat_template_kwargs,omitempty"`

	AddSpecialTokens    bool  `json:"add_special_tokens,omitempty"`
	AddGenerationPrompt *bool `json:"add_generation_prompt,omitempty"`
	ContinueFinal       bool  `json:"continue_final_message,omitempty"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"` // none is not ""
	Reasoning  *string         `json:"reasoning,omitempty"`
	ToolCalls  []chatCall      `json:"tool_calls,omitempty"`
	ToolCallID *string         `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// newCall is a call of a function.
func newCall(id, name, arguments string) chatCall {
	c := chatCall{ID: id, Type: "function"}
	c.Function.Name, c.Function.Arguments = name, arguments
	return c
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name         string          `json:"name"`
	Description  json.RawMessage `json:"description,omitempty"`
	Parameters   json.RawMessage `json:"parameters,omitempty"`
	Strict       json.RawMessage `json:"strict,omitempty"`
	DeferLoading json.RawMessage `json:"defer_loading,omitempty"`
}

// chatPart is a part of a message's content.
type chatPart struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitempty"`
	Name     string    `json:"name,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// quoted returns a text as JSON. An error of the encoder, which has none for strings,
// would be an empty content.
func quoted(text string) json.RawMessage {
	b, err := sonic.Marshal(text)
	if err != nil {
		return nil
	}
	return b
}

// partsOf returns parts as JSON.
func partsOf(parts []chatPart) (json.RawMessage, error) { return sonic.Marshal(parts) }

// setEffort adds how hard a model is to think to the arguments of its template, where
// vLLM puts it too. Templates that have a switch for thinking get that as well.
func setEffort(args map[string]json.RawMessage, effort json.RawMessage) {
	if !isSet(effort) {
		return
	}
	args["reasoning_effort"] = effort
	if _, ok := args["enable_thinking"]; !ok {
		on := "true"
		if string(effort) == `"none"` {
			on = "false"
		}
		args["enable_thinking"] = json.RawMessage(on)
	}
}

// templateArgs returns the arguments of a template with those of a body, which are not
// changed.
func templateArgs(own map[string]json.RawMessage, effort json.RawMessage) map[string]json.RawMessage {
	args := make(map[string]json.RawMessage, len(own)+2)
	for name, value := range own {
		args[name] = value
	}
	setEffort(args, effort)
	return args
}
